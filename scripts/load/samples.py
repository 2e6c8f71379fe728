"""What a workload is, and what one repeat of it has found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from .environment import Cost, Environment, Setup

T = TypeVar("T")


class Sample(NamedTuple):
    """One repeat: its rows, what a run cost in some of them, memory by role in MB."""

    rows: Mapping[str, float]
    costs: Mapping[str, Cost] = {}
    memory_mb: Mapping[str, float] = {}


class Workload(NamedTuple):
    """`once`: it is not repeated."""

    run: Callable[[Setup], Coroutine[Any, Any, Sample]]
    once: bool = False


async def idle(on: Environment, row: str, idle_s: float) -> Sample:
    """CPU of all processes of the service in a stretch of time in which nobody asks for anything; its cost is µs per
    second."""
    with on.measured(row, idle_s) as costs:
        await asyncio.sleep(idle_s)
    used_us = sum(cost for role, cost in costs[row].cpu_us.items() if role in on.service.roles)
    return Sample({row: used_us / 1e6 * 100}, costs)


def merged(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {name: value for part in parts for name, value in part.items()}


async def each(do: Callable[[T], Awaitable[None]], items: Iterator[T], users: int) -> list[float]:
    """Do it with each of the items, so many at a time. Seconds that each took, in ascending order."""
    times = list[float]()

    async def user() -> None:
        for item in items:
            begin = time.perf_counter()
            await do(item)
            times.append(time.perf_counter() - begin)

    await asyncio.gather(*(user() for _ in range(users)))
    return sorted(times)
