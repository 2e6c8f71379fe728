"""The first event of a run in memory."""

from __future__ import annotations

from msgspec import Raw

from penstock.engine.definition.definitions import run_limits
from penstock.engine.run.event_payloads import LABELS_FORMAT, Started, TriggerRef
from penstock.engine.run.events import WorkflowStarted
from penstock.testing.memory.catalog import RegisteredWorkflow


def started(
    run_id: str,
    found: RegisteredWorkflow,
    value: Raw,
    at: str,
    labels: dict[str, str] | None = None,
    trigger: TriggerRef | None = None,
) -> WorkflowStarted:
    """`value` is the input, `at` the time of the service, RFC 3339."""
    definition = found.definition
    payload = Started(
        workflow=definition.name,
        version=definition.version,
        digest=found.digest,
        input=value,
        trigger=trigger,
        labels=labels,
        waits=run_limits(definition),
    )
    return WorkflowStarted(run_id=run_id, timestamp=at, payload=payload, v=LABELS_FORMAT if labels else 1)
