"""GET /runs/{id}/explain where it needs the front end: a storage that is full; and the commands that sentences name."""

from __future__ import annotations

import ast
import re
from contextlib import AsyncExitStack
from pathlib import Path

import click
import orjson
import pytest

from penstock.broker.store import open_store
from penstock.broker.streams.provisioning import provision
from penstock.cli.main import penstock
from penstock.config.settings import Settings
from penstock.engine.waiting.reasons import Reason
from penstock.http.app import create_app
from tests.support.conductor import Conductor
from tests.support.little_room import fill, small_broker
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "engine" / "waiting").glob("*.py"), *(ROOT / "http" / "diagnosis" / "checks").glob("*.py")]
NAMED = re.compile(r"`penstock ([a-z ]+)")


async def test_a_full_storage_is_why_a_run_waits(data_dir: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(small_broker(data_dir))
        store = await stack.enter_async_context(open_store(broker.settings, "test"))
        await provision(store.broker, broker.settings)
        http = await stack.enter_async_context(Conductor(create_app(Settings(broker=broker.settings))))
        definition = {"name": "w", "steps": [{"id": "a", "task": "work"}]}
        await http.simulate_post("/workflows", body=orjson.dumps(definition))
        run_id = (await http.simulate_post("/runs", body=orjson.dumps({"workflow": "w"}))).json["run_id"]
        await fill(store)

        async def said() -> str:
            first = (await http.simulate_get(f"/runs/{run_id}/explain")).json["waiting"][0]
            return first["text"] if first["reason"] == Reason.STORAGE_FULL else ""

        assert "the broker's storage is full" in await until(said)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_command_that_a_sentence_names_is_there(source: Path) -> None:
    texts = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
    for words in (found.split() for text in texts if isinstance(text, str) for found in NAMED.findall(text)):
        command: click.Command = penstock
        while words and isinstance(command, click.Group):
            context = click.Context(command)
            found = command.get_command(context, words.pop(0))
            assert found is not None, f"{source.name}: {words}"
            command = found
