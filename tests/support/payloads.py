"""Payloads of a run whose log a test holds in memory: what the shell reads from the history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, UnsetType

from penstock.engine.run.events import Event
from penstock.engine.run.execution.beginning import about_failure, needed, received
from penstock.engine.run.kinds.map import items_of, map_of
from penstock.engine.run.payloads import Gathered, Parts, PayloadRef, Value, element_result, joined, payload_of
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan, Workflow

Log = Callable[[int], Event]
"""From a stream sequence to the event that has it."""


def whole(value: Value, log: Log) -> Raw:
    """The payload, from the log where the state has only its place."""
    match value:
        case Raw():
            return value
        case PayloadRef(seq=seq):
            payload = payload_of(log(seq))
            assert not isinstance(payload, UnsetType)
            return payload
        case Gathered(items=items):
            places = [element.begun + element.ended for _, element in items.numbered()]
            return Raw(b"[%b]" % b",".join(bytes(element_result(log(seq), items.wraps)) for seq in places))
        case Parts(parts=parts):
            return joined({key: whole(part, log) for key, part in parts.items()})
        case _:
            return joined({key: whole(part, log) for key, part in value.items()})


def payloads(workflow: Workflow, run: Run, plan: StepPlan, log: Log) -> dict[str, Raw]:
    """What beginning the step reads."""
    found = {name: whole(value, log) for name, value in needed(run, plan).items()}
    if plan.item is not None:
        of = map_of(workflow, plan)
        found["item"] = items_of(run, of, payloads(workflow, run, of, log))[plan.item]
    if plan.handles is not None:
        handled = workflow.plan_of(plan.handles)
        assert handled is not None
        given = received(workflow, run, handled, payloads(workflow, run, handled, log))
        found["default"] = about_failure(run, plan.handles, whole(given, log))
    return found
