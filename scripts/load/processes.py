"""Processes seen from outside, through /proc: who belongs to whom, CPU, memory; and what else the machine was busy
with."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PACE_LOOPS, PACE_TRIES = 50_000, 3
CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel

Roles = Mapping[str, frozenset[int]]
"""Process ids by what they are for."""


class Busy(NamedTuple):
    """CPU time of the whole machine since it started, in s; `stolen` is what its host gave to others."""

    used: float
    stolen: float


def roles(root: int, named: Mapping[str, int]) -> Roles:
    """Every process under `root` by role: a named one's descendants are in its role, the rest is `serve`."""
    parents = _children()
    found = {name: frozenset(_descendants(pid, parents)) for name, pid in named.items()}
    taken: frozenset[int] = frozenset().union(*found.values())
    return {"serve": frozenset(_descendants(root, parents)) - taken, **found}


def children(pid: int) -> list[int]:
    """The processes that this one is the parent of; of those that have ended, none."""
    return _children().get(pid, [])


def descendants(root: int) -> frozenset[int]:
    """This process and every one under it that lives."""
    return frozenset(_descendants(root, _children()))


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that these processes have used; one that is gone counts nothing."""
    return sum(map(_cpu_s, pids))


def memory_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes, shared pages divided among those that share them."""
    return sum(map(_pss_bytes, pids))


def busy() -> Busy:
    """The machine's CPU time so far, idle and waiting excluded."""
    ticks = [int(word) for word in (PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, stolen = ticks
    return Busy((user + nice + system + irq + softirq) * TICK_S, stolen * TICK_S)


def pace_ms() -> float:
    """CPU time of a fixed piece of work, now: processors change their pace, and with it every figure."""
    return min(_loop_s() for _ in range(PACE_TRIES)) * 1000


def _loop_s() -> float:
    begin = time.thread_time()
    for _ in range(PACE_LOOPS):
        pass
    return time.thread_time() - begin


def _cpu_s(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | CPU_CLOCK)  # the clock of another process: see clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _pss_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _children() -> Mapping[int, list[int]]:
    """Of each process that has some; those of which only the exit code is left are none."""
    found: dict[int, list[int]] = defaultdict(list)
    for path in PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            found[int(parent)].append(int(path.parent.name))
    return found


def _descendants(root: int, parents: Mapping[int, list[int]]) -> set[int]:
    return {root}.union(*(_descendants(child, parents) for child in parents.get(root, ())))
