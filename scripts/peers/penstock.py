"""penstock as the others are measured: with a worker in a process of its own, asked over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from load.chain import NAME
from load.environment import Setup, Sizes, environment_in

from .system import Running, System
from .users import load

INPUT = b'{"n":1}'


@asynccontextmanager
async def start(directory: Path, fsync: str | None = None) -> AsyncIterator[Running]:
    async with environment_in(directory, Setup(Sizes(), None, directory), fsync=fsync) as on:

        async def run() -> object:
            return await on.client.status_at_end(await on.client.start(NAME, INPUT))

        pids = frozenset[int]().union(*(pids for role, pids in on.roles.items() if role != "load"))
        yield Running(lambda users, seconds: load(run, users, seconds), lambda: pids)


SYSTEMS = (
    System(
        "penstock",
        "a service with the defaults, one worker process over NATS; two requests a run, its start and its end",
        start,
    ),
    System("penstock, fsync = always", "the same, each write synced before it counts", lambda at: start(at, "always")),
)
