"""Looking at limits: what they were asked, what was decided, who waits; and a worker that counts, or waits itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import PARTITIONS
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Decided, LimitRecord, Requested, decode
from penstock.engine.limits.state import LimitState
from tests.support.waiting import until_true
from tests.support.world import Echo, echo


class Counting:
    """Answers tasks when others have had time to come, and counts how many were out at once."""

    def __init__(self) -> None:
        self.out, self.most = set[str](), 0

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.out.add(task.task_id)
        self.most = max(self.most, len(self.out))
        await asyncio.sleep(0.005)
        self.out.remove(task.task_id)
        await worker.complete(task)


class Held:
    """Tasks in the order in which they came; none is answered before `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.tasks: list[TaskPayload] = []

    @property
    def inputs(self) -> list[bytes]:
        return [bytes(task.input) for task in self.tasks]

    async def begun(self, run_id: str) -> None:
        """Return when a task of the run has come."""
        await until_true(lambda: any(task.run_id == run_id for task in self.tasks))

    async def answer(self, worker: Echo, task: TaskPayload) -> None:
        self.tasks.append(task)
        await self.go.wait()
        await worker.complete(task)


@asynccontextmanager
async def held(store: Store, workflow: str) -> AsyncIterator[Held]:
    found = Held()
    async with echo(store, f"{workflow}.echo", found.answer):
        yield found


async def records(store: Store) -> list[LimitRecord]:
    """All that is stored of all limits."""
    found: list[LimitRecord] = []
    if await store.limit_log.tip() is None:
        return found
    for number in range(PARTITIONS):
        async for page in store.limit_log.stored(number, 0):
            found += [decode(one.data) for one in page]
    return found


async def asks(store: Store, scope: str) -> list[Requested]:
    return [one for one in await records(store) if isinstance(one, Requested) and one.name.scope == scope]


async def decided(store: Store, scope: str, kind: LimitKind | None = None) -> list[Decided]:
    found = [one for one in await records(store) if isinstance(one, Decided) and one.name.scope == scope]
    return [one for one in found if kind in (None, one.name.kind)]


async def waiting(shard: Shard, scope: str, count: int) -> None:
    """Return when so many wait for the limits of a scope."""
    await until_true(lambda: sum(state.waiting_total for state in _states(shard, scope)) == count)


async def holding(shard: Shard, scope: str, count: int) -> None:
    """Return when so many hold the limits of a scope."""
    await until_true(lambda: sum(len(state.holders) for state in _states(shard, scope)) == count)


def _states(shard: Shard, scope: str) -> list[LimitState]:
    partitions = shard.limits.partitions.values()
    states = [actor.state for partition in partitions for actor in partition.limits.values()]
    return [state for state in states if state.name is not None and state.name.scope == scope]
