"""Why a run waits: its state and the facts about the world, joined. The sentences of each subject are in a module of
their own."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.durations import text
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import instant, rfc3339
from penstock.engine.waiting.awaited import Awaited, WaitingExecution, executions
from penstock.engine.waiting.facts import LiveFacts
from penstock.engine.waiting.of_limits import of_run, of_slot
from penstock.engine.waiting.of_time import of_child, of_event, of_retry, of_sleep, of_word
from penstock.engine.waiting.of_workers import of_queue, of_task_aside, of_worker
from penstock.engine.waiting.reasons import Reason, WaitingReason

BY_KIND = {
    Awaited.QUEUE: of_queue,
    Awaited.WORKER: of_worker,
    Awaited.ASIDE: of_task_aside,
    Awaited.LIMIT: of_slot,
    Awaited.RETRY: of_retry,
    Awaited.SLEEP: of_sleep,
    Awaited.EVENT: of_event,
    Awaited.APPROVAL: of_word,
    Awaited.CHILD: of_child,
}


def explain(workflow: Workflow | None, run: Run, facts: LiveFacts) -> list[WaitingReason]:
    """Every reason for which the run does not go on, those of the whole run first. Empty for a run that has ended, and
    while workers carry out one of its steps and nothing else of it waits. `workflow` is None where its definition is
    not in the store."""
    if run.ended:
        return []
    found = [*_of_pause(run), *_of_service(run, facts), *_of_start(run), *of_run(run, facts)]
    at_work = False
    for one in executions(workflow, run):
        reasons = [] if _is_engines(run, one) else list(BY_KIND[one.awaits](run, one, facts))
        at_work |= not reasons and one.awaits in (Awaited.QUEUE, Awaited.WORKER) and _is_out(one, facts)
        found += reasons
    return found if found or at_work else [_next_move(workflow, run, facts)]


def _is_out(one: WaitingExecution, facts: LiveFacts) -> bool:
    """Whether a worker has its task, or is about to get it."""
    return one.awaits is Awaited.WORKER or one.id in facts.tasks


def _is_engines(run: Run, one: WaitingExecution) -> bool:
    """Whether nothing but the engine, or the end of the run's pause, makes the execution go on: while the run is paused
    its queued tasks are withdrawn, and decisions about its approvals are kept."""
    withdrawn = run.pause is not None and (one.awaits is Awaited.QUEUE or run.pause.decided(one.id))
    return one.awaits is Awaited.ENGINE or withdrawn


def _of_pause(run: Run) -> Iterator[WaitingReason]:
    if run.pause is not None:
        yield WaitingReason(
            reason=Reason.PAUSED,
            since=run.pause.at,
            text=f"the run is paused, so nothing new of it begins: `penstock run resume {run.run_id}` lets it go on",
            details={},
        )


def _of_service(run: Run, facts: LiveFacts) -> Iterator[WaitingReason]:
    engine, since = facts.engine, rfc3339(facts.now)
    if facts.storage:
        way_out = "free or add space for it (`penstock doctor` says how much is used)"
        yield WaitingReason(
            reason=Reason.STORAGE_FULL,
            since=since,
            text=f"nothing is stored now, so no run goes on: {facts.storage}; {way_out}",
            details={},
        )
    if not engine.owned:
        way_out = "start one (`penstock serve`, or `penstock engine` with an external broker)"
        yield WaitingReason(
            reason=Reason.PARTITION_UNOWNED,
            since=since,
            text=f"no engine has partition {engine.partition}, in which this run is: {way_out}",
            details={"partition": engine.partition},
        )
    elif engine.events:
        yield _behind(
            run,
            facts,
            f"the engine has {engine.events} event{'s' if engine.events > 1 else ''} of this run's partition before "
            f"it, and is {_span(engine.seconds)} behind: wait, or add shards or engines if that lasts",
        )


def _of_start(run: Run) -> Iterator[WaitingReason]:
    if run.status is RunStatus.SCHEDULED:
        at = run.run_at or run.created_at
        yield WaitingReason(
            reason=Reason.DELAYED_START,
            since=run.created_at,
            text=f"the run starts at {at}, as was asked for: `penstock run unschedule {run.run_id}` cancels it",
            until=at,
            details={},
        )


def _next_move(workflow: Workflow | None, run: Run, facts: LiveFacts) -> WaitingReason:
    """The next move is the engine's own, and nothing that is known keeps it from that."""
    if workflow is None:
        return _behind(
            run,
            facts,
            f'the definition of workflow "{run.workflow_id}" that this run has is not in the store: register the same '
            "one again, or cancel the run",
        )
    since = facts.changed_at
    waited = "" if since is None else f" for {_span(facts.now - since)}"
    return _behind(
        run,
        facts,
        f"the engine has this run's next move to make{waited}: if that lasts, `penstock doctor` says what is wrong",
    )


def _behind(run: Run, facts: LiveFacts, sentence: str) -> WaitingReason:
    engine = facts.engine
    since = facts.now - engine.seconds if engine.events else facts.changed_at
    seconds = engine.seconds if engine.events else max(0.0, facts.now - (since or facts.now))
    return WaitingReason(
        reason=Reason.ENGINE_BEHIND,
        since=rfc3339(since or instant(run.started_at or run.created_at)),
        text=sentence,
        details={"events": engine.events, "seconds": round(seconds, 1)},
    )


def _span(seconds: float) -> str:
    return text(max(0, round(seconds)))
