"""A run starts, or goes on after a failure: at once, or when it has the slots of all its limits. Until then it is
pending."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.engine.run.commands import AppendEvent, TakeOver
from penstock.engine.run.control.overriding import override
from penstock.engine.run.control.resuming import removals, resume
from penstock.engine.run.control.taking_over import begin_steps
from penstock.engine.run.event_payloads import Cancellation, Resumed, SlotRefusal
from penstock.engine.run.events import Record, StepOverridden, WorkflowCancelled, WorkflowStarted
from penstock.engine.run.execution.steps import enter
from penstock.engine.run.expansion import expanded
from penstock.engine.run.holds import Resuming
from penstock.engine.run.slots.holders import RUN, holder_of
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.run.timers import with_timeout
from penstock.engine.run.workflow import Advance, Workflow


def start(workflow: Workflow, run: Run, record: Record) -> Advance:
    """The run may begin as far as its time is concerned."""
    takes = record.event.payload.takes if isinstance(record.event, WorkflowStarted) else None
    run = replace(run, status=RunStatus.PENDING, taking=takes, seq=record.seq)
    return (run, []) if workflow.slots is not None else begin(workflow, run, record)


def resume_or_wait(workflow: Workflow, run: Run, record: Record, payload: Resumed) -> Advance:
    """The failed run goes on. No ancestor waits for it any more: it needs slots of its own."""
    if workflow.slots is None:
        return resume(workflow, run, record, payload)
    removed = removals(workflow, run, payload.dead_letters)
    run = replace(
        run,
        status=RunStatus.PENDING,
        error=None,
        finished_at=None,
        resumes=run.resumes + 1,
        under=(),
        resuming=Resuming(payload),
        seq=record.seq,
    )
    return run, removed


def begin(workflow: Workflow, run: Run, record: Record) -> Advance:
    """The run has all that it needs: it starts, or goes on."""
    if run.resuming is not None:
        return _go_on(workflow, run, record, run.resuming)
    run = replace(run, status=RunStatus.RUNNING, started_at=record.event.timestamp, seq=record.seq)
    run, timers = with_timeout(run, workflow.timeout_s, record.at)
    if run.taking is not None:
        return run, [*timers, TakeOver()]
    if run.rerun_of is not None:  # what is given may have come while it waited
        run, commands = begin_steps(expanded(workflow, run), run, record)
    else:
        run, commands = enter(workflow, run, workflow.roots, record)
    return run, timers + commands


def begun_soon(workflow: Workflow, run: Run, record: Record) -> Run:
    """A run that is to go on after a failure, as it will be when it has its slots; any other as it is."""
    return run if run.resuming is None else begin(expanded(workflow, run), run, record)[0]


def completed_later(run: Run, record: Record, event: StepOverridden) -> Run:
    """The step that a run holds which is to go on is completed by hand: kept until then."""
    if run.resuming is None or run.resuming.completed is not None or run.resuming.payload.holds != event.step_id:
        return run
    return replace(run, resuming=replace(run.resuming, completed=event, seq=record.seq), seq=record.seq)


def refused(run: Run, record: Record, refusal: SlotRefusal) -> Advance:
    """A limit lets the run not begin: it is about to end, and asks no more."""
    slot = run.slots.get(RUN)
    waits = run.status is RunStatus.PENDING and run.error is None
    if slot is None or not waits or holder_of(run, RUN, slot) != refusal.holder:
        return run, []
    payload = Cancellation(refusal.reason)
    event = WorkflowCancelled(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload)
    return replace(run, error=refusal.reason, seq=record.seq), [AppendEvent(event)]


def _go_on(workflow: Workflow, run: Run, record: Record, resuming: Resuming) -> Advance:
    run, commands = resume(workflow, run, record, resuming.payload)
    if resuming.completed is None:
        return run, commands
    by_hand = replace(resuming.completed, timestamp=record.event.timestamp)
    run, following = override(expanded(workflow, run), run, Record(resuming.seq, record.at, by_hand), by_hand)
    return replace(run, seq=record.seq), commands + following
