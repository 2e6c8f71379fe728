"""What a workload is, and what one repeat of it has found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
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
