"""What a run sends when it asks for a slot: the request, or the event that comes in its place."""

from __future__ import annotations

from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import Requested
from penstock.engine.run.commands import BeginStep, ReleaseSlot, RequestSlot
from penstock.engine.run.event_payloads import RunFailure, SlotGrant
from penstock.engine.run.events import Event, LimitGranted, WorkflowFailed
from penstock.engine.run.execution.beginning import failed_to_begin
from penstock.engine.run.slots.asking import Asking
from penstock.engine.run.slots.holders import RUN, slots_of
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.engine.times import rfc3339

FORMAT = 3  # of a grant: older versions do not know it


def limits_of(workflow: Workflow, command: RequestSlot | ReleaseSlot) -> tuple[SlotsPlan, StepPlan | None]:
    """The limits among which the command means one, and the step that has them; None: the run has them."""
    wanted = slots_of(workflow, command.step_id or RUN)
    assert wanted is not None, "a command names only limits that are there"
    return wanted, None if command.step_id is None else workflow.plan_of(command.step_id)


def request(run: Run, wanted: SlotsPlan, command: RequestSlot, asked: Asking) -> Requested | LimitGranted:
    """The request for the slot; where an ancestor of the run holds one, the grant of that."""
    limit = wanted.limits[command.number]
    name = LimitName(limit.kind, limit.scope, asked.key)
    # Nobody asks how many follow in an execution: its run goes on meanwhile.
    more = len(wanted.limits) - command.number - 1 if command.step_id is None else 0
    if name.id in run.under:
        slot = SlotGrant(
            command.holder, name.id, name.kind.value, name.scope, name.key, command.step_id, inherited=True, more=more
        )
        return LimitGranted(run_id=run.run_id, timestamp=rfc3339(command.at), payload=slot, v=FORMAT)
    return Requested(
        name=name,
        holder=command.holder,
        run_id=run.run_id,
        allowed=limit.allowed,
        step_id=command.step_id,
        priority=asked.priority,
        fair=asked.fair,
        on_limit=limit.on_limit,
        more=more,
    )


def released_limit(wanted: SlotsPlan, command: ReleaseSlot, asked: Asking) -> str:
    """The id of the limit whose slot is given back."""
    limit = wanted.limits[command.number]
    return LimitName(limit.kind, limit.scope, asked.key).id


def failed_to_ask(run: Run, plan: StepPlan | None, command: RequestSlot, error: str) -> Event:
    """What becomes of an execution, or a run, whose expressions fail before it can ask."""
    if plan is not None:
        return failed_to_begin(run, plan, beginning(command), error)
    failure = RunFailure(error=error, resumes=run.resumes)
    return WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(command.at), payload=failure)


def beginning(command: RequestSlot) -> BeginStep:
    """What the execution that asks is about to do."""
    assert command.step_id is not None
    return BeginStep(command.step_id, command.attempt, command.iteration, command.at)
