"""Runs that hold and wait for limits, recorded: all that the service has stored of the runs and of the limits.

    python -m tests.e2e.recorded_limits     writes limits.json in recordings/<version in setup.cfg> if it is missing

A file that is there is never written again: test_older_limits.py has today's service go on from there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.client import AsyncClient
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import NotFound
from tests.e2e.recorded_workers import FOLDER
from tests.properties.recorded import SEAL, current, seal
from tests.support.service import Service
from tests.support.waiting import until

TASK = "older.limited"
RUNS, KEYED, SHARED, REPORT = "older-limited", "older-keyed", "older-shared", "older-report"
DEFINITIONS: tuple[dict[str, Any], ...] = (
    {"name": RUNS, "concurrency": [{"limit": 1}], "steps": [{"id": "s", "task": TASK}]},
    {
        "name": KEYED,
        "concurrency": [{"limit": 1, "key": "input.tenant", "fair_by": "input.user"}],
        "steps": [{"id": "s", "task": TASK, "rate_limit": [{"limit": 10, "per": "1s"}]}],
    },
    {
        "name": SHARED,
        "priority": 5,
        "steps": [{"id": "s", "task": TASK, "concurrency": [{"limit": 1, "scope": REPORT}]}],
    },
)
INPUTS: tuple[tuple[str, dict[str, str]], ...] = (
    *[(RUNS, {"n": str(number)}) for number in range(3)],
    *[(KEYED, {"tenant": tenant, "user": user}) for tenant in "ab" for user in "xxy"],
    *[(SHARED, {"n": str(number)}) for number in range(3)],
)
LIMITS = (("runs", RUNS, None), ("runs", KEYED, "a"), ("runs", KEYED, "b"), ("executions", REPORT, None))


class Shown(Struct, frozen=True):
    """One limit: the runs that hold it, and those that wait, in the order in which they are served."""

    scope: str
    key: str | None
    holders: list[str]
    waiting: list[str]


class Message(Struct, frozen=True):
    """One message as it is stored; `body` is text."""

    subject: str
    body: str


class Recording(Struct, frozen=True):
    """`run_ids` in the order of their start. `limits` is the whole stream, from its first sequence on."""

    definitions: list[dict[str, Any]]
    run_ids: list[str]
    history: list[Message]
    limits: list[Message]
    shown: list[Shown]


async def shown(client: AsyncClient) -> list[Shown]:
    """Who holds each of LIMITS, and who waits for it, as the API shows it."""
    found: list[Shown] = []
    for kind, scope, key in LIMITS:
        with suppress(NotFound):
            one = await client.limit(scope, key=key, kind=kind)
            holders, waiting = ([row.run_id for row in rows] for rows in (one.holders, one.waiting))
            found.append(Shown(scope, key, holders, waiting))
    return found


async def record(service: Service) -> Recording:
    broker = BrokerSettings(url=service.broker_url)
    async with AsyncClient(service.url) as client, open_store(broker, "recording") as store:
        for definition in DEFINITIONS:
            await client.register(orjson.dumps(definition))
        run_ids: list[str] = []
        for workflow, given in INPUTS:
            run_ids.append((await client.start(workflow, orjson.dumps(given))).run_id)

            async def asked() -> bool:
                return len(run_ids) == sum(len(one.holders) + len(one.waiting) for one in await shown(client))

            await until(asked)
        await until(lambda: _queued(store))
        return Recording(
            list(DEFINITIONS),
            run_ids,
            await _stored(store, names.HISTORY, "history.*.*"),
            await _stored(store, names.LIMITS, ">", whole=True),
            await shown(client),
        )


async def _queued(store: Store) -> bool:
    """Whether a task is out for the one holder of each limit."""
    return await store.reader.count(names.TASKS, "task.>") == len(LIMITS)


async def _stored(store: Store, stream: str, subject: str, whole: bool = False) -> list[Message]:
    found = await store.reader.subject(stream, subject)
    if whole:
        assert [one.seq for one in found] == list(range(1, len(found) + 1)), "something was removed already"
    return [Message(one.subject, one.data.decode()) for one in found]


async def main() -> None:
    folder = FOLDER / current()
    path = folder / "limits.json"
    if path.exists():
        return
    with TemporaryDirectory() as directory, Service(Path(directory), {}, shards=1, http_workers=1) as service:
        recording = await record(service)
    path.write_bytes(orjson.dumps(msgspec.to_builtins(recording), option=orjson.OPT_INDENT_2) + b"\n")
    (folder / SEAL).write_text(seal(folder) + "\n")
    print(path.name)


if __name__ == "__main__":
    asyncio.run(main())
