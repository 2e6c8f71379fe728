"""What has to be known of the world to say why a run waits. All times are s since the epoch, by the broker's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed

TaskKind: TypeAlias = tuple[str, str | None]
"""Task type and worker group (None: without one)."""


class QueueState(Struct, frozen=True):
    """The queue of a task type and worker group, and who serves it.

    `workers` are registered for it, and carry out `slots` tasks at a time, of which `busy` are in use. `elsewhere`
    workers are registered for the type, but for another group or none. `asked`: a worker requests tasks now.
    """

    workers: int = 0
    slots: int = 0
    busy: int = 0
    elsewhere: int = 0
    asked: bool = False


class QueuedTask(Struct, frozen=True):
    """The task of an execution as it is stored since `at`. `place` counts from 1 among those that no worker has got
    yet; 0: it was delivered to a worker. `exact`: the place was counted, not estimated."""

    at: float
    place: int = 0
    exact: bool = True


class SignOfLife(Struct, frozen=True):
    """The last sign of life of a worker (None: there is none). `silent`: another one was due before now. `until` is
    when its task is delivered again at the latest, None where that is not known."""

    at: float | None = None
    silent: bool = True
    until: float | None = None


class EngineProgress(Struct, frozen=True):
    """How far the engine is with the events of the run's partition. `owned`: an engine has the partition. `events` are
    not handled although they should be, among them the run's last one; the first of them came `seconds` ago."""

    partition: int = 0
    owned: bool = True
    events: int = 0
    seconds: float = 0.0


class SlotWait(Struct, frozen=True):
    """What is known of a limit that an execution, or the run, waits for. `kind`, `scope` and `key` name it.

    `allowed` is how much it allows now, which is `overridden` or registered. `place` counts from 1 among the `waiting`
    ones; None: its owner has not seen the request yet. `oldest` is the run of the oldest of its `holders`, None where
    it is not to be named. `next_at` is when a rate lets something begin again.
    """

    kind: LimitKind
    scope: str
    key: str | None
    allowed: Allowed
    overridden: bool = False
    holders: int = 0
    oldest: str | None = None
    place: int | None = None
    waiting: int = 0
    next_at: float | None = None


class LiveFacts(Struct, frozen=True):
    """Everything that `explain` needs beside the run. Keys of `tasks`, `bound`, `begun_by` and `signs` are ids of
    executions.

    `changed_at` is the time of the run's last event, None where that is not known. `storage` is why nothing is stored,
    empty when the storage works. `begun_by` is the worker that has begun the execution, where the run's state does not
    have it. `bound` is the queue of the worker that an execution is bound to; `signs` are of the worker that has it, or
    that it is bound to. `limits` are those that executions wait for, and the run as a whole (under "").
    """

    now: float
    engine: EngineProgress = EngineProgress()
    storage: str = ""
    changed_at: float | None = None
    queues: Mapping[TaskKind, QueueState] = {}
    tasks: Mapping[str, QueuedTask] = {}
    bound: Mapping[str, QueueState] = {}
    begun_by: Mapping[str, str] = {}
    signs: Mapping[str, SignOfLife] = {}
    limits: Mapping[str, SlotWait] = {}
