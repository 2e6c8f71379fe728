"""What a replay finds: where the run of today is not the recorded one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Struct

from penstock.testing.run import StepOfRun, TestRun

SHOWN_CHARS_MAX = 200
COMPARED = ("status", "attempts", "output", "error")


class Difference(Struct, frozen=True):
    """`where` is `the run`, or a step or an execution of one; `what` is the status, attempts, input, output or error
    that differs. What JSON has is decoded; None where there is nothing."""

    where: str
    what: str
    recorded: Any
    today: Any

    def __str__(self) -> str:
        return f"{self.where}: {self.what} was {_shown(self.recorded)}, is {_shown(self.today)}"


def differences(recorded: TestRun, today: TestRun) -> Iterator[Difference]:
    """Of two runs, step by step, in the order of the recorded ones."""
    before, now = recorded.steps, today.steps
    for step_id, step in before.items():
        where = f"step {step_id!r}"
        if step_id not in now:
            yield Difference(where, "status", step.status, None)
        else:
            yield from _of_step(where, step, now[step_id])
    for step_id, step in now.items():
        if step_id not in before:
            yield Difference(f"step {step_id!r}", "status", None, step.status)
    for what, was, found in (
        ("status", recorded.status, today.status),
        ("error", recorded.error, today.error),
        ("output", _output(recorded), _output(today)),
    ):
        if was != found:
            yield Difference("the run", what, was, found)


def _of_step(where: str, recorded: StepOfRun, today: StepOfRun) -> Iterator[Difference]:
    for what in COMPARED:
        was, found = getattr(recorded, what), getattr(today, what)
        if was != found:
            yield Difference(where, what, was, found)


def _output(run: TestRun) -> Any:
    return run.output if run.status == "completed" else None


def _shown(value: Any) -> str:
    said = orjson.dumps(value).decode()
    return said if len(said) <= SHOWN_CHARS_MAX else said[: SHOWN_CHARS_MAX - 1] + "…"
