"""Sleeps: steps that wait for a time, without a worker."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from msgspec import UNSET, structs
from msgspec.structs import replace

from penstock.config.limits import SLEEP_S_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.durations import parse, text
from penstock.engine.definition.forms import Document, Form, exactly_one, nested
from penstock.engine.definition.identifiers import json_type
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import FOR_WORKERS_ONLY, WITHOUT_WORKER, step_type
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.run.commands import Command
from penstock.engine.run.event_payloads import StepFacts
from penstock.engine.run.events import Record
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import completed
from penstock.engine.run.kinds.base import BaseKind, written_down
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.timers import TimerKind, retimed
from penstock.engine.run.workflow import Advance, Evaluated, StepPlan, Workflow
from penstock.engine.times import instant, rfc3339

DURATION, UNTIL = "config.duration", "config.until"
TOO_LONG = f"a sleep may last {text(SLEEP_S_MAX)} at the most"

CONFIG = Form(
    component="SleepConfig",
    fields={
        "duration": values.template(values.timeout).annotated(description="How long, or a template that says it."),
        "until": values.template(values.instant).annotated(
            description="An RFC 3339 time, or a template that gives one or milliseconds since 1970."
        ),
    },
    schema=exactly_one("duration", "until"),
)


class Sleep(BaseKind):
    """A step that is done when its time has come. Its output is null."""

    name = "sleep"
    places: tuple[Place, ...] = (WHEN, Place(DURATION), Place(UNTIL))
    form = Form(
        component="SleepStep",
        fields={**WITHOUT_WORKER, "type": step_type("sleep"), "config": nested(CONFIG)},
        required=("id", "type", "config"),
        elsewhere=FOR_WORKERS_ONLY,
        schema={"description": "A wait for a time; no worker takes part."},
    )

    def check(self, label: str, step: Document, report: Report) -> Document:
        config = step.get("config")
        given = config if isinstance(config, dict) else {}
        if len(given) != 1:
            report.add(f"{label}: config must hold duration or until, and not both")
        if _seconds(given.get("duration")) > SLEEP_S_MAX:
            report.add(f"{label}: config: duration {given['duration']} is too long: {TOO_LONG}")
        return step

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        return structs.replace(plan, task=self.name, timeout_s=None)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """Write down until when. What the expression gives is checked here: a fault in it fails the step."""
        return written_down(run, plan, at, StepFacts(wake_at=rfc3339(_wake_at(at, values))))

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        step = run.step(plan.id)
        wake_at = record.at if begun.wake_at is None else instant(begun.wake_at)
        asleep = replace(step, status=StepStatus.RUNNING, started_at=record.event.timestamp, wake_at=wake_at)
        return with_step(run, record, plan.id, asleep), retimed(run, plan.id, step, asleep)

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        if timer is not TimerKind.SLEEP:
            return run, []
        awake = replace(run.step(plan.id), wake_at=None)  # it has fired: it need not be withdrawn
        return completed(workflow, with_step(run, record, plan.id, awake), record, plan, UNSET)


def _wake_at(at: float, values: Evaluated) -> float:
    """Raises ExpressionFailed for what is no duration and no time, or too long."""
    if DURATION in values:
        wake_at = at + _duration(orjson.loads(bytes(values[DURATION])))
    else:
        wake_at = _instant(orjson.loads(bytes(values[UNTIL])))
    if wake_at - at > SLEEP_S_MAX:
        raise ExpressionFailed(f"it would sleep until {rfc3339(wake_at)}: {TOO_LONG}")
    return wake_at


def _duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ExpressionFailed(f"config.duration gives {json_type(value)}, not a duration such as 30s")
    try:
        return parse(value)
    except ValueError as error:
        raise ExpressionFailed(f"config.duration: {error}") from error


def _instant(value: object) -> float:
    try:
        if isinstance(value, str):
            return instant(value)
        if not isinstance(value, bool) and isinstance(value, int | float):
            rfc3339(value / 1000)  # raises for what no calendar has
            return value / 1000
    except (ValueError, OverflowError) as error:
        raise ExpressionFailed(f"config.until: {error}") from error
    raise ExpressionFailed(f"config.until gives {json_type(value)}, not an RFC 3339 time or milliseconds since 1970")


def _seconds(duration: object) -> float:
    """Of a constant duration; 0 for anything else."""
    try:
        return parse(duration) if isinstance(duration, str | int) else 0.0
    except ValueError:  # a template, or reported already
        return 0.0
