"""Responses: steps that answer whoever called the run, while the run goes on.

What is answered is worked out as the step begins and stands in its `step.started`, which completes it: whoever waits
reads it from the log, and where nobody waits it is only recorded. The first response of a run counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from msgspec import structs
from msgspec.structs import replace

from penstock.config.limits import KIB
from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Form, nested, rule
from penstock.engine.definition.http_requests import (
    HEADER_CHARS_MAX,
    HEADER_PATTERN,
    STATUS_MAX,
    header_problem,
    value_problem,
)
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import FOR_WORKERS_ONLY, WITHOUT_WORKER, step_type
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.run.commands import Command
from penstock.engine.run.event_payloads import NULL, Reply, StepFacts
from penstock.engine.run.events import Event, Record, StepStarted
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.steps import completed
from penstock.engine.run.kinds.base import BaseKind, written_down
from penstock.engine.run.kinds.http import as_text
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.workflow import Advance, Evaluated, StepPlan, Workflow

STATUS, HEADERS, BODY = "config.status", "config.headers", "config.body"
STATUS_MIN, STATUS_DEFAULT = 200, 200
HEADERS_MAX = 64
HEADERS_CHARS_MAX = 8 * KIB  # names and values together: more, and many clients refuse the response

_OF_THE_SERVICE = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "location",
        "server",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@rule(
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{HEADER_PATTERN}$", "maxLength": HEADER_CHARS_MAX},
        "additionalProperties": {"type": "string"},
        "maxProperties": HEADERS_MAX,
    }
)
def _headers(path: str, value: object, report: Report) -> object:
    if not isinstance(value, dict):
        report.add(f"{path} must be an object, not {json_type(value)}")
        return {}
    report.add(*(f"{path}: {problem}" for problem in _problems(value)))
    return value


CONFIG = Form(
    component="RespondConfig",
    fields={
        "status": values.template(values.whole_number(STATUS_MAX, STATUS_MIN)).annotated(
            description=f"{STATUS_DEFAULT} without it."
        ),
        "headers": _headers.annotated(description="From name to text, which may hold templates."),
        "body": values.anything.annotated(
            description="Answered as JSON; a string with a content-type of its own is answered as it is."
        ),
    },
)


class Respond(BaseKind):
    """A step that answers the caller of the run. Its output is the body."""

    name = "respond"
    places: tuple[Place, ...] = (WHEN, Place(STATUS), Place(HEADERS), Place(BODY))
    form = Form(
        component="RespondStep",
        fields={**WITHOUT_WORKER, "type": step_type("respond"), "config": nested(CONFIG)},
        required=("id", "type"),
        elsewhere=FOR_WORKERS_ONLY,
        schema={"description": "The answer to whoever called the run; no worker takes part."},
    )

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        return structs.replace(plan, task=self.name, timeout_s=None)

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """Write down the response. What the expressions give is checked here: a fault in it fails the step."""
        reply = Reply(_status(values), _checked_headers(values), values.get(BODY, NULL))
        return written_down(run, plan, at, StepFacts(reply=reply))

    def begun(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, begun: StepFacts) -> Advance:
        if begun.reply is None:
            return run, []
        at = record.event.timestamp
        running = replace(run.step(plan.id), status=StepStatus.RUNNING, started_at=at)
        return completed(workflow, with_step(run, record, plan.id, running), record, plan, begun.reply.body)


def reply_in(event: Event, before: Run | None, after: Run | None) -> Reply | None:
    """The response that this event gave: `after` is the run with it, `before` without it. A late event gives none."""
    match event:
        case StepStarted(step_id=step_id, payload=StepFacts(reply=Reply() as reply)) if before and after:
            states = [run.steps[step_id].status for run in (before, after) if step_id in run.steps]
            return reply if states == [StepStatus.QUEUED, StepStatus.COMPLETED] else None
        case _:
            return None


def _status(values: Evaluated) -> int:
    """Raises ExpressionFailed for what is no status."""
    found = orjson.loads(bytes(values[STATUS])) if STATUS in values else STATUS_DEFAULT
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise ExpressionFailed(f"config.status gives {json_type(found)}, not a status")
    if not STATUS_MIN <= found <= STATUS_MAX:
        raise ExpressionFailed(f"config.status gives {found}, not a status from {STATUS_MIN} to {STATUS_MAX}")
    return found


def _checked_headers(values: Evaluated) -> dict[str, str]:
    """Those that do not give null, as text. Raises ExpressionFailed."""
    given: dict[str, Any] = orjson.loads(bytes(values.get(HEADERS, b"{}")))
    headers = {name: as_text(value) for name, value in given.items() if value is not None}
    for problem in _problems(headers, evaluated=True):
        raise ExpressionFailed(f"config.headers: {problem}")
    return headers


def _problems(headers: dict[str, Any], *, evaluated: bool = False) -> Iterator[str]:
    """What is wrong with the headers; texts with templates only once these are evaluated."""
    if len(headers) > HEADERS_MAX:
        yield f"{len(headers)} headers, {HEADERS_MAX} are the most"
    seen: set[str] = set()
    for name, value in headers.items():
        yield from _name_problems(name, seen)
        if not isinstance(value, str):
            yield f"{quoted(name)} must be a string, not {json_type(value)}"
        elif evaluated or not values.is_template(value):
            yield from (f"{quoted(name)} {problem}" for problem in _value_problems(value))
    if (size := sum(len(name) + len(str(value)) for name, value in headers.items())) > HEADERS_CHARS_MAX:
        yield f"{size} characters, {HEADERS_CHARS_MAX} are the most"


def _name_problems(name: str, seen: set[str]) -> Iterator[str]:
    lower = name.lower()
    if lower in _OF_THE_SERVICE or lower.startswith("penstock-"):
        yield f"{quoted(name)} is set by the service"
    elif problem := header_problem(name):
        yield problem
    if lower in seen:
        yield f"{quoted(name)} is there twice"
    seen.add(lower)


def _value_problems(value: str) -> Iterator[str]:
    if problem := value_problem(value):
        yield problem
    elif not value.isascii():
        yield "holds characters that are not ASCII"
