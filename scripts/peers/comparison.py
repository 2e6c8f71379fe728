"""The same load on each system: closed loops of 16 and of 64 users, and one user alone. Turn by turn, one system runs
at a time, on empty data; the medians of the turns count."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import uvloop
from load.figures import percentile
from load.processes import busy, cpu_s, descendants
from msgspec import Struct

from . import dbos, penstock, restate, temporal
from .system import Running, Skipped, System

SYSTEMS: Sequence[System] = (*penstock.SYSTEMS, *restate.SYSTEMS, *dbos.SYSTEMS, *temporal.SYSTEMS)
USERS = (16, 64, 1)
WARM_USERS = 16


class Length(Struct, frozen=True):
    """How long the parts of a turn are, in s."""

    warm_s: float = 3.0
    load_s: float = 5.0


QUICK = Length(0.3, 0.3)


class Found(Struct, frozen=True):
    """A load on a system: runs a second, how long a run took its user, the CPU of all processes of the system for one;
    and the share of the machine that went to others meanwhile."""

    runs_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    others: float


class Comparison(Struct):
    """By system: how it is set up, and what was found with so many users; or why it was not measured."""

    machine: str
    how: dict[str, str]
    found: dict[str, dict[int, Found]]
    skipped: dict[str, str]


def compare(machine: str, turns: int, length: Length) -> Comparison:
    """Measure all systems. The first turn makes the environments that are missing."""
    found: dict[str, list[Mapping[int, Found]]] = {}
    skipped: dict[str, str] = {}
    for turn in range(turns):
        for system in SYSTEMS:
            if system.name in skipped:
                continue
            try:
                with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
                    one = uvloop.run(_turn(system, Path(name), length))
            except Skipped as error:
                skipped[system.name] = str(error)
                continue
            found.setdefault(system.name, []).append(one)
            _say(turn, system, one)
    how = {system.name: system.how for system in SYSTEMS}
    return Comparison(machine, how, {name: _medians(parts) for name, parts in found.items()}, skipped)


async def _turn(system: System, directory: Path, length: Length) -> Mapping[int, Found]:
    async with system.start(directory) as running:
        await running.load(WARM_USERS, length.warm_s)
        return {users: await _found(running, users, length.load_s) for users in USERS}


async def _found(running: Running, users: int, seconds: float) -> Found:
    before, ours, machine, begin = _cpu_s(running.pids()), _cpu_s(_ours()), busy(), time.perf_counter()
    times = sorted(await running.load(users, seconds))
    took_s, used_s, others_s = time.perf_counter() - begin, _since(before, running.pids()), busy().used - machine.used
    if not times:
        raise Skipped("no run ended")
    others_s -= _since(ours, _ours())
    p50, p99 = (percentile(times, share) * 1000 for share in (0.5, 0.99))
    others = max(0.0, others_s / took_s / len(os.sched_getaffinity(0)))
    return Found(len(times) / took_s, p50, p99, used_s / len(times) * 1e6, others)


def _ours() -> frozenset[int]:
    """This process, those of the system and of its users."""
    return descendants(os.getpid())


def _cpu_s(pids: frozenset[int]) -> Mapping[int, float]:
    return {pid: cpu_s([pid]) for pid in pids}


def _since(before: Mapping[int, float], pids: frozenset[int]) -> float:
    """CPU that these processes have used since then, in s."""
    return sum(now - before.get(pid, 0.0) for pid, now in _cpu_s(pids).items())


def _medians(parts: Sequence[Mapping[int, Found]]) -> dict[int, Found]:
    return {
        users: Found(*(median(getattr(part[users], field) for part in parts) for field in Found.__struct_fields__))
        for users in USERS
    }


def _say(turn: int, system: System, one: Mapping[int, Found]) -> None:
    figures = ", ".join(f"{users} users {found.runs_per_s:,.0f} runs/s" for users, found in one.items())
    print(f"{system.name} {turn + 1}: {figures}", file=sys.stderr, flush=True)
