"""The run that a workflow's `on_failure` starts when a run of it has failed.

Its id follows from that of the failed run and how often it had been resumed: so there is one for each time that it
fails, whoever starts it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import orjson
from msgspec import Raw

from penstock.engine.definition.definitions import WorkflowDef, run_limits
from penstock.engine.definition.schema import Schema
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.places import FAILURE_LABELS
from penstock.engine.expressions.template import Template
from penstock.engine.run.commands import StartFailureRun
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import Record, WorkflowFailed, WorkflowStarted
from penstock.engine.run.execution.beginning import about
from penstock.engine.run.execution.children import FORMAT, PREFIX_CHARS, check_input, labels_given
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.engine.texts import shortened
from penstock.engine.times import rfc3339


def failure_run(workflow: Workflow, run: Run, record: Record) -> list[StartFailureRun]:
    """What follows from the end of the run by this event. A run that was started so starts none itself."""
    event = record.event
    if workflow.on_failure is None or run.failure_of is not None or not isinstance(event, WorkflowFailed):
        return []
    failure = event.payload
    return [StartFailureRun(shortened(failure.error), failure.step_id, run.resumes, record.at)]


def failure_run_id(run_id: str, resumes: int) -> str:
    hashed = sha256(f"{run_id}\non_failure\n{resumes}".encode()).hexdigest()
    return (run_id[:PREFIX_CHARS] + hashed)[:32]


def failure_run_start(
    run: Run,
    resumes: int,
    definition: WorkflowDef,
    digest: str,
    schema: Schema | None,
    value: Raw,
    labels: dict[str, str] | None,
    at: float,
    trace: str | None = None,
) -> WorkflowStarted:
    """The event that begins that run; `schema` is that of its input. Raises Invalid for an input that breaks it."""
    check_input(schema, value)
    payload = Started(
        workflow=definition.name,
        version=definition.version,
        digest=digest,
        input=value,
        failure_of=run.run_id,
        labels=labels,
        waits=run_limits(definition),
    )
    run_id = failure_run_id(run.run_id, resumes)
    return WorkflowStarted(run_id=run_id, timestamp=rfc3339(at), trace_parent=trace, payload=payload, v=FORMAT)


def failure_start(
    workflow: Workflow, run: Run, command: StartFailureRun, given: Raw
) -> tuple[Raw, dict[str, str] | None]:
    """The input and the labels of that run; `given` is the input of the run which has failed.

    Raises ExpressionFailed.
    """
    default = {
        "run_id": run.run_id,
        "workflow": run.workflow_id,
        "error": command.error,
        "failed_step": command.failed_step,
        "input": orjson.Fragment(bytes(given)),
    }
    plan, encoded = workflow.on_failure, Raw(orjson.dumps(default))
    values = {"default": encoded, "input": given, "run": about(run)}
    value = encoded if plan is None or plan.input is None else _filled(plan.input, values)
    labels = None if plan is None or plan.labels is None else _filled(plan.labels, values)
    return value, labels_given(FAILURE_LABELS, labels)


def _filled(template: Template, values: Mapping[str, Any]) -> Raw:
    return Raw(template.json(Values({name: values[name] for name in template.references.names})))
