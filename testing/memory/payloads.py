"""Payloads of a run whose log is in memory: what the service reads from the history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, UnsetType

from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.events import Event
from penstock.engine.run.execution.beginning import about_completion, about_failure, first_given, needed, received
from penstock.engine.run.execution.elements import ended_seq
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.kinds.map import items_of, map_of
from penstock.engine.run.payloads import Gathered, Parts, PayloadRef, Value, element_result, joined, payload_of
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import COMPENSATE, StepPlan, Workflow

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


def _output(run: Run, plan: StepPlan, log: Log) -> Raw:
    """The output of a step, or of an element of a map."""
    place = run.element(plan.id)
    if place is None:
        return whole(output_of(run, plan.id), log)
    found = payload_of(log(ended_seq(run, *place)))
    return NULL if isinstance(found, UnsetType) else found


def payloads(workflow: Workflow, run: Run, plan: StepPlan, log: Log) -> dict[str, Raw]:
    """What beginning the step reads."""
    found = {name: whole(value, log) for name, value in needed(run, plan).items()}
    if plan.item is not None:
        of = map_of(workflow, plan)
        found["item"] = items_of(run, of, payloads(workflow, run, of, log))[plan.item]
    if plan.handles is not None:
        handled = workflow.plan_of(plan.handles)
        assert handled is not None
        undoes = plan.kind.name == COMPENSATE
        run = first_given(run, handled) if undoes else run
        given = whole(received(workflow, run, handled, payloads(workflow, run, handled, log)), log)
        if undoes:
            found["default"] = about_completion(given, _output(run, handled, log))
        else:
            found["default"] = about_failure(run, plan.handles, given)
    return found
