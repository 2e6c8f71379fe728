"""HTTP requests: steps whose task is one request, sent by the service's own worker (`penstock worker http`).

A secret in a header is not evaluated here: it goes to the worker by its name, as a part of the header. What an
expression gives is only text there, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step
from penstock.engine.definition.forms import Form, nested, rule
from penstock.engine.definition.http_requests import (
    EXPECT_PATTERN,
    HEADER_CHARS_MAX,
    HEADER_PATTERN,
    METHODS,
    STATUS_MAX,
    STATUS_MIN,
    TASK,
    TIMEOUT_DEFAULT_S,
    header_problem,
    status_problem,
    value_problem,
)
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import STEP, step_type
from penstock.engine.expressions.places import WHEN, Place
from penstock.engine.expressions.template import has_secret
from penstock.engine.run.commands import Command
from penstock.engine.run.events import Record, StepCompleted
from penstock.engine.run.execution.dispatch import begin_step, task_with
from penstock.engine.run.execution.steps import completed, is_current
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.workflow import Advance, Evaluated, Ordered, StepEvent, StepPlan, Workflow

EXPECT_MAX = 100
HEADERS = "config.headers"
FIELDS = ("url", "method", "headers", "body", "timeout", "expect")
NOT_ITS_OWN = frozenset({"task", "with", "loop"})

_URL = re.compile(r"https?://[^/?#\s@]+([/?#]\S*)?", re.IGNORECASE)


class HttpPlan(Struct, frozen=True):
    """`secret_headers`: those that hold a secret. Their templates give arrays of texts and names of secrets."""

    secret_headers: frozenset[str]


@rule({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]", "examples": ["https://api.example.com/orders"]})
def _url(path: str, value: object, report: Report) -> object:
    if not isinstance(value, str):
        report.add(f"{path} must be a string, not {json_type(value)}")
    elif not _URL.fullmatch(value):
        report.add(f"{path} {quoted(value)} must begin with http:// or https:// and a host, without user and password")
    return value


@rule(
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{HEADER_PATTERN}$", "maxLength": HEADER_CHARS_MAX},
        "additionalProperties": {"type": "string"},
    }
)
def _headers(path: str, value: object, report: Report) -> object:
    if not isinstance(value, dict):
        report.add(f"{path} must be an object, not {json_type(value)}")
        return {}
    seen: set[str] = set()
    for name, text in value.items():
        report.add(*(f"{path}: {problem}" for problem in _header_problems(name, text, seen)))
        seen.add(name.lower())
    return value


@rule(
    {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "integer", "minimum": STATUS_MIN, "maximum": STATUS_MAX},
                {"type": "string", "pattern": EXPECT_PATTERN},
            ]
        },
        "minItems": 1,
        "maxItems": EXPECT_MAX,
    }
)
def _expect(path: str, value: object, report: Report) -> object:
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
    elif not 1 <= len(value) <= EXPECT_MAX:
        report.add(f"{path} has {len(value)} entries, it must have 1 to {EXPECT_MAX}")
    else:
        problems = ((at, status_problem(status)) for at, status in enumerate(value) if not values.is_template(status))
        report.add(*(f"{path}[{at}]: {problem}" for at, problem in problems if problem))
    return value


CONFIG = Form(
    component="HttpConfig",
    fields={
        "url": values.template(_url).annotated(description="Where the request goes, by http or https."),
        "method": values.template(values.one_of(*METHODS)).annotated(description="GET without it."),
        "headers": _headers.annotated(
            description="From name to text, in which `${{ secret.NAME }}` is a secret that only the worker knows."
        ),
        "body": values.anything.annotated(
            description="Sent as JSON; a string with a content-type of its own is sent as it is."
        ),
        "timeout": values.template(values.timeout).annotated(
            description=f"How long one request may take, with its redirects. {TIMEOUT_DEFAULT_S:g}s without it."
        ),
        "expect": values.template(_expect).annotated(
            description='Statuses that complete the step, as 404 or "4xx". ["2xx"] without it.'
        ),
    },
    required=("url",),
)


class Http(Normal):
    """A step whose task is a request. Sticky runs have no part in it: their workers do not send requests."""

    name = "http"
    places: tuple[Place, ...] = (
        WHEN,
        *(Place(path, secrets=path == HEADERS) for path in (f"config.{field}" for field in FIELDS)),
    )
    form = Form(
        component="HttpStep",
        fields={
            **{key: field for key, field in STEP.fields.items() if key not in NOT_ITS_OWN},
            "type": step_type("http"),
            "config": nested(CONFIG),
        },
        required=("id", "type", "config"),
        elsewhere=NOT_ITS_OWN,
        schema={"description": "An HTTP request, which `penstock worker http` sends."},
    )

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        given = (step.config or {}).get("headers", {})
        with_secrets = frozenset(name for name, text in given.items() if has_secret(text))
        return replace(plan, task=TASK, config=HttpPlan(with_secrets))

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        return step, [begin_step(record, plan, step)]

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        request: dict[str, Any] = {
            field: values[path] for field in FIELDS if (path := f"config.{field}") in values and path != HEADERS
        }
        if headers := _sent_headers(plan, values):
            request["headers"] = headers
        return [task_with(run, plan, run.step(plan.id), Raw(msgspec.json.encode(request)))]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        if isinstance(event, StepCompleted) and is_current(run.step(plan.id), event):
            return completed(workflow, run, record, plan, event.payload)  # its worker is not one to keep to
        return super().take_event(workflow, run, record, event, plan)


def _sent_headers(plan: StepPlan, values: Evaluated) -> dict[str, Any]:
    """The headers as the task has them. One without a secret that gives null is left out."""
    assert isinstance(plan.config, HttpPlan)
    given: dict[str, Any] = msgspec.json.decode(values.get(HEADERS, b"{}"))
    return {
        name: value if name in plan.config.secret_headers else as_text(value)
        for name, value in given.items()
        if value is not None
    }


def as_text(value: Any) -> str:
    """A string as it is, anything else as compact JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _header_problems(name: str, text: object, seen: set[str]) -> Iterator[str]:
    if problem := header_problem(name):
        yield problem
    if name.lower() in seen:
        yield f"{quoted(name)} is there twice"
    if not isinstance(text, str):
        yield f"{quoted(name)} must be a string, not {json_type(text)}"
    elif not values.is_template(text) and (problem := value_problem(text)):
        yield f"{quoted(name)} {problem}"
