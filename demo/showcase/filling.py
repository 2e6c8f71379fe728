"""What a service must know before the showcase begins: its workflows, and what starts runs of them by itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import orjson
from msgspec.structs import replace

from penstock.client import Client

WORKERS = tuple(f"penstock.demo.showcase.{name}" for name in ("shop", "site", "newsroom", "lab"))
WEBHOOK = "site-push"


def register(client: Client, secret: str) -> int:
    """Register every workflow and trigger; `secret` signs the webhook's requests. Returns how many workflows."""
    definitions = sorted(files(__package__).joinpath("definitions").iterdir(), key=lambda path: path.name)
    for definition in reversed(definitions):  # so that a workflow comes after those that it names
        client.register(definition.read_bytes())
    for trigger in _triggers():
        document = {**trigger, "webhook": {"secret": secret}} if trigger["name"] == WEBHOOK else trigger
        client.put_trigger(orjson.dumps(document))
    return len(definitions)


def disable_triggers(client: Client) -> None:
    """Let no trigger start runs any more, since the workers go away."""
    names = {trigger["name"] for trigger in _triggers()}
    for trigger in client.triggers():
        if trigger.name in names and trigger.enabled:
            client.set_trigger(replace(trigger, enabled=False))


def _triggers() -> Iterator[dict[str, object]]:
    yield from orjson.loads(files(__package__).joinpath("triggers.json").read_bytes())
