"""Commands: what `advance` orders the shell to do. Every one is safe to do twice."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Raw, Struct

from penstock.engine.events import Event


class DispatchTask(Struct, frozen=True, tag=True):
    """Queue one execution of a step for the workers of its task type (and group)."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    input: Raw
    metadata: dict[str, str]
    group: str | None = None


class WithdrawTask(Struct, frozen=True, tag=True):
    """Take the run's queued tasks of this type (and group) back; those that a worker holds end with its late answer."""

    task: str
    group: str | None = None


class SetTimer(Struct, frozen=True, tag=True):
    """Append `timer.fired` at `due` (s since the epoch, broker time). A second SetTimer of the same name replaces the first."""

    timer: str
    due: float
    step_id: str | None = None
    attempt: int | None = None


class WithdrawTimer(Struct, frozen=True, tag=True):
    """The timer is not needed any more; one that fires all the same is ignored by `advance`."""

    timer: str
    due: float


class DeadLetterTask(Struct, frozen=True, tag=True):
    """Keep a task that failed for good where an operator finds it. Comes before the event that fails its run."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    input: Raw
    metadata: dict[str, str]
    error: str
    group: str | None = None


class AppendEvent(Struct, frozen=True, tag=True):
    """Add an event of the engine's own to the run's history."""

    event: Event


Command: TypeAlias = DispatchTask | WithdrawTask | SetTimer | WithdrawTimer | DeadLetterTask | AppendEvent
