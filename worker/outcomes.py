"""The outcomes of a task, as its function returns or raises them, and as a transport reports them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

from penstock.config.limits import NAME_CHARS_MAX, PAUSE_MS_MAX
from penstock.engine.run.event_payloads import Failure


class Continue:
    """Returned by the function of an agent_loop step: execute another iteration, with the input `value`."""

    def __init__(self, value: Any = None) -> None:
        self.value: Any = value


class Pause(Exception):
    """Raised by a task function: deliver this task again in `delay_s`, at most an hour. It uses up no attempt.

    `load_checkpoint` then returns `checkpoint` (JSON; None: the last one stays); `name` is a label for people.
    """

    def __init__(self, delay_s: float, checkpoint: Any = None, name: str | None = None) -> None:
        if not (math.isfinite(delay_s) and 0 <= delay_s * 1000 <= PAUSE_MS_MAX):
            raise ValueError(f"a pause of {delay_s} s is not possible, {PAUSE_MS_MAX // 1000} s is the most")
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise ValueError(f"the name of a pause has {len(name)} characters, {NAME_CHARS_MAX} is the most")
        super().__init__(f"paused for {delay_s:g} s")
        self.delay_s: float = delay_s
        self.checkpoint: Any = checkpoint
        self.name: str | None = name


class TaskCompleted(NamedTuple):
    """`output` is JSON; None: there is none."""

    output: bytes | None


class TaskContinued(NamedTuple):
    """`value` is JSON, the next iteration's input; None: it has none."""

    value: bytes | None


class TaskPaused(NamedTuple):
    """`checkpoint` is JSON; None: the last one stays."""

    delay_s: float
    checkpoint: bytes | None
    name: str | None


Outcome: TypeAlias = TaskCompleted | TaskContinued | TaskPaused | Failure
