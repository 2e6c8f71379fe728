"""What a workload is, and what one repeat of it has found."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from .environment import Cost, Setup


class Sample(NamedTuple):
    """One repeat: its rows, what a run cost in some of them, memory by role in MB."""

    rows: Mapping[str, float]
    costs: Mapping[str, Cost] = {}
    memory_mb: Mapping[str, float] = {}


class Workload(NamedTuple):
    """`once`: it is not repeated."""

    run: Callable[[Setup], Coroutine[Any, Any, Sample]]
    once: bool = False
