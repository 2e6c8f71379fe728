"""Waits for an event from outside of the run: `POST /events/{name}`, a webhook, or any program that publishes one.

Which events count is a matter of the times at which the broker has stored them: from when the step could begin to the
deadline. So it does not matter when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from penstock.config.limits import CORRELATION_BYTES_MAX, LOOKBACK_S_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.durations import parse, seconds, text
from penstock.engine.definition.forms import Document, Form, default_in_words, nested
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import FOR_WORKERS_ONLY, WITHOUT_WORKER, step_type
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.run.commands import AwaitEvent, Command, StopWaiting
from penstock.engine.run.event_payloads import Correlation, EventWait, StepFacts
from penstock.engine.run.events import EventReceived, Record
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import completed, fail_for_good, is_current
from penstock.engine.run.kinds.base import BaseKind, written_down
from penstock.engine.run.kinds.correlation import NoValue, key_of
from penstock.engine.run.payloads import payload_of
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import TimerKind
from penstock.engine.run.workflow import Advance, Evaluated, StepEvent, StepPlan, Workflow
from penstock.engine.times import instant, rfc3339

VALUE, MATCH = "config.correlate.value", "config.match"
CONTINUE = "continue"

CORRELATE = Form(
    component="EventCorrelation",
    fields={
        "field": values.dot_path.annotated(description="A place in the event's body: `order.id`."),
        "value": values.anything.annotated(description="What must be there: any JSON, with `${{ expression }}`."),
    },
    required=("field", "value"),
)

CONFIG = Form(
    component="WaitForEventConfig",
    fields={
        "event": values.name.annotated(description="The name under which events are sent: `POST /events/{name}`."),
        "correlate": nested(CORRELATE),
        "match": values.expression.annotated(
            description="A condition over `event` (its body), `input` and `steps`; what it fails on does not count."
        ),
        "timeout": values.timeout.annotated(description="How long to wait; without one for ever."),
        "on_timeout": values.one_of("fail", CONTINUE).annotated(
            description="What happens then. The output of a step that goes on is null. " + default_in_words("fail")
        ),
        "lookback": values.delay.annotated(description="How much older an event may be than the step; 24h at most."),
    },
    required=("event",),
)


class EventWaitPlan(Struct, frozen=True):
    """What a step waits for; the rest is in its expressions."""

    event: str
    field: str | None
    timeout_s: float | None
    goes_on: bool
    lookback_s: float


class WaitForEvent(BaseKind):
    """A step that is completed by an event, whose body becomes its output."""

    name = "wait_for_event"
    places: tuple[Place, ...] = (
        WHEN,
        Place(VALUE),
        Place(MATCH, template=False, condition=True, names=("event",), later=True),
    )
    form = Form(
        component="WaitForEventStep",
        fields={**WITHOUT_WORKER, "type": step_type("wait_for_event"), "config": nested(CONFIG)},
        required=("id", "type", "config"),
        elsewhere=FOR_WORKERS_ONLY,
        schema={"description": "A wait for an event from outside of the run; no worker takes part."},
    )

    def check(self, label: str, step: Document, report: Report) -> Document:
        config = step.get("config")
        given = config if isinstance(config, dict) else {}
        if "on_timeout" in given and "timeout" not in given:
            report.add(f"{label}: config: on_timeout needs a timeout")
        if isinstance(lookback := given.get("lookback"), str) and _too_long(lookback):
            report.add(f"{label}: config: lookback {lookback} is too long: {text(LOOKBACK_S_MAX)} is the most")
        return step

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        config = step.config or {}
        waited = EventWaitPlan(
            config["event"],
            (config.get("correlate") or {}).get("field"),
            seconds(config.get("timeout")),
            config.get("on_timeout") == CONTINUE,
            seconds(config.get("lookback")) or 0.0,
        )
        return replace(plan, task=self.name, timeout_s=None, config=waited)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """Write down what is waited for. Raises ExpressionFailed for a value that is too large."""
        waited, step = _plan(plan), run.step(plan.id)
        since = at - waited.lookback_s if step.waits_for is None else step.waits_for.since
        begun = StepFacts(
            event=waited.event,
            correlate=None if waited.field is None else Correlation(waited.field, _value(values[VALUE])),
            since=rfc3339(since),
            until=None if waited.timeout_s is None else rfc3339(at + waited.timeout_s),
        )
        return written_down(run, plan, at, begun)

    def held(self, plan: StepPlan, step: StepState, at: float) -> StepState:
        """Events that are stored from now on count, whenever it begins to wait."""
        if step.waits_for is not None:
            return step
        waited = _plan(plan)
        return replace(step, waits_for=EventWait(waited.event, at - waited.lookback_s))

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        wait = EventWait(
            begun.event or _plan(plan).event,
            record.at if begun.since is None else instant(begun.since),
            None if begun.until is None else instant(begun.until),
            None if begun.correlate is None else replace(begun.correlate, value=begun.correlate.value.copy()),
            tuple(sorted(_received_before(workflow, run, plan))),
        )
        step = replace(run.step(plan.id), status=StepStatus.RUNNING, started_at=record.event.timestamp, waits_for=wait)
        looking: list[Command] = [] if run.failing else [AwaitEvent(plan.id, step.attempts, wait)]
        return with_step(run, record, plan.id, step), looking

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        step = run.step(plan.id)
        if not isinstance(event, EventReceived):
            after, commands = super().take_event(workflow, run, record, event, plan)
            return after, _with_stop(plan, step, after, commands)
        if run.failing or step.status is not StepStatus.RUNNING or not is_current(step, event):
            return run, []
        received = replace(step, waits_for=None, received=event.payload.seq)
        run = replace(run, steps={**run.steps, plan.id: received})
        after, commands = completed(workflow, run, record, plan, payload_of(event))
        return after, [StopWaiting(plan.id, step.attempts), *commands]

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        """Nobody has found an event that was stored in time."""
        if timer is not TimerKind.WAIT:
            return run, []
        step, waited = run.step(plan.id), _plan(plan)
        if waited.goes_on:
            run = replace(run, steps={**run.steps, plan.id: replace(step, waits_for=None)})
            after, commands = completed(workflow, run, record, plan, UNSET)
        else:
            error = f"no event {waited.event} came within {text(waited.timeout_s or 0)}"
            after, commands = fail_for_good(workflow, run, record, plan, error)
        return after, [StopWaiting(plan.id, step.attempts), *commands]

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        return (StopWaiting(plan.id, step.attempts),) if step.status is StepStatus.RUNNING else ()


def _with_stop(plan: StepPlan, before: StepState, after: Run, commands: list[Command]) -> list[Command]:
    """The commands, and one more if a step that waited has ended by them."""
    waited = before.status is StepStatus.RUNNING and after.step(plan.id).status is not StepStatus.RUNNING
    return [StopWaiting(plan.id, before.attempts), *commands] if waited else commands


def _received_before(workflow: Workflow, run: Run, plan: StepPlan) -> Iterator[int]:
    """The sequences of the events that have completed a step on which this one depends, directly or not."""
    seen: set[str] = set()
    ahead = list(_directly_before(workflow, plan))
    while ahead:
        if (step_id := ahead.pop()) in seen:
            continue
        seen.add(step_id)
        if (received := run.steps[step_id].received) is not None:
            yield received
        ahead += _directly_before(workflow, workflow.steps[step_id])


def _directly_before(workflow: Workflow, plan: StepPlan) -> Iterator[str]:
    """The step's dependencies, those of the planners that have inserted it, and the last steps of its own plan."""
    yield from plan.depends_on
    yield from workflow.lasts.get(plan.id, {}).values()
    while plan.planner is not None:
        plan = workflow.steps[plan.planner]
        yield from plan.depends_on


def _value(given: Raw) -> Raw:
    try:
        size = len(key_of(orjson.loads(bytes(given))))
    except NoValue as error:
        raise ExpressionFailed(f"{VALUE} gives what is nested too deep to be compared") from error
    if size > CORRELATION_BYTES_MAX:
        raise ExpressionFailed(f"{VALUE} gives {size} bytes, {CORRELATION_BYTES_MAX} is the most")
    return given


def _plan(plan: StepPlan) -> EventWaitPlan:
    assert isinstance(plan.config, EventWaitPlan)
    return plan.config


def _too_long(lookback: str) -> bool:
    try:
        return parse(lookback) > LOOKBACK_S_MAX
    except ValueError:  # reported already
        return False
