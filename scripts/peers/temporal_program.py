"""A worker of Temporal, or its users: `python -m peers.temporal_program worker ADDRESS KIND`, or `users ADDRESS KIND
SOCKET`, in the folder scripts/. KIND is `activities` or `local`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from peers.users import load, serve

QUEUE = "bench"
Value = dict[str, int]

INPUT: Value = {"n": 1}
STEP_MAX = timedelta(seconds=60)

Execute = Callable[..., Awaitable[Value]]


@activity.defn
async def echo(value: Value) -> Value:
    return value


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, value: Value) -> Value:
        return await _steps(workflow.execute_activity, value)


@workflow.defn
class LocalChain:
    @workflow.run
    async def run(self, value: Value) -> Value:
        return await _steps(workflow.execute_local_activity, value)


CHAINS = {"activities": Chain, "local": LocalChain}


async def _steps(execute: Execute, value: Value) -> Value:
    for _ in range(3):
        value = await execute(echo, value, start_to_close_timeout=STEP_MAX)
    return value


async def work(client: Client) -> None:
    """For ever."""
    await Worker(client, task_queue=QUEUE, workflows=list(CHAINS.values()), activities=[echo]).run()


async def be_users(client: Client, kind: str) -> None:
    """Until the socket is closed."""
    numbers = itertools.count()

    async def run() -> object:
        return await client.execute_workflow(
            CHAINS[kind].run, INPUT, id=f"{os.getpid()}-{next(numbers)}", task_queue=QUEUE
        )

    await serve(lambda users, seconds: load(run, users, seconds))


async def main(what: str, address: str, kind: str) -> None:
    client = await Client.connect(address)
    await (work(client) if what == "worker" else be_users(client, kind))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
