"""Reasons of executions whose task is with the workers: nobody serves it, all are busy, or the one that has it is
silent."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.durations import text
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.definition.identifiers import quoted
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339
from penstock.engine.waiting.awaited import WaitingExecution
from penstock.engine.waiting.facts import LiveFacts, QueuedTask, QueueState, SignOfLife
from penstock.engine.waiting.of_time import begun_at, named
from penstock.engine.waiting.reasons import Reason, WaitingReason

UNBEGUN_S = 2.0  # a worker says that it has begun a task within 25 ms
ASIDE_S_MAX = 3600.0
HTTP_WORKER = "`penstock worker http`, or builtin_workers of `penstock serve`"


def of_queue(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    """Empty when a worker is about to get its task, or has just got it."""
    if one.step.sticky is not None:
        yield from _of_bound_worker(run, one, facts, one.step.sticky)
        return
    since, task = _since(run, one, facts), facts.tasks.get(one.id)
    unserved = list(_unserved(one, facts, since))
    yield from unserved
    if task is None or unserved:
        return
    yield from _of_waiting(one, facts, task, since) if task.place else _of_delivered(one, facts, task)


def of_worker(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    """Empty while the worker that has begun the execution gives signs of life."""
    worker_id = one.step.worker_id or facts.begun_by.get(one.id, "")
    sign = facts.signs.get(one.id)
    if sign is None or not sign.silent:
        return
    last = "is not registered any more" if sign.at is None else f"has given no sign of life since {rfc3339(sign.at)}"
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.WORKER_SILENT,
        since=begun_at(run, one) if sign.at is None else rfc3339(sign.at),
        text=f"worker {quoted(worker_id)}, which has begun {named(one)}, {last}: {_delivered_again(sign)}",
        until=None if sign.until is None else rfc3339(sign.until),
        details={"worker_id": worker_id},
    )
    if one.step.sticky is None:
        yield from _unserved(one, facts, begun_at(run, one))


def of_task_aside(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    worker_id = one.step.worker_id or ""
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.PAUSED,
        since=begun_at(run, one),
        text=f"worker {quoted(worker_id)} has put {named(one)} aside: it is delivered again when the time is over that "
        f"the worker has given, {text(ASIDE_S_MAX)} at most",
        details={"worker_id": worker_id},
    )
    yield from _unserved(one, facts, begun_at(run, one))


def _since(run: Run, one: WaitingExecution, facts: LiveFacts) -> str:
    task = facts.tasks.get(one.id)
    return begun_at(run, one) if task is None else rfc3339(task.at)


def _unserved(one: WaitingExecution, facts: LiveFacts, since: str) -> Iterator[WaitingReason]:
    """Nobody serves its tasks: no worker of its group where it has one, or none at all."""
    queue = facts.queues.get(one.kind)
    if queue is None or queue.workers or queue.asked:
        return
    (task, group), known = one.kind, "`penstock worker list` shows those that are there"
    if group is not None:
        others = "" if not queue.elsewhere else f", though {_count(queue.elsewhere, 'other worker')} of that task run"
        yield WaitingReason(
            step_id=one.id,
            reason=Reason.WORKER_GROUP_EMPTY,
            since=since,
            text=f"{named(one)} waits for a worker of group {quoted(group)}, and none serves task {quoted(task)} there "
            f"now{others}: start one with that group ({known})",
            details={"task": task, "worker_group": group},
        )
        return
    start = HTTP_WORKER if task == HTTP_TASK else f"start one ({known})"
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.NO_WORKER,
        since=since,
        text=f"{named(one)} waits for a worker, and none serves task {quoted(task)} now: {start}",
        details={"task": task},
    )


def _of_waiting(one: WaitingExecution, facts: LiveFacts, task: QueuedTask, since: str) -> Iterator[WaitingReason]:
    """Its task waits in the queue, and workers serve it."""
    queue = facts.queues.get(one.kind, QueueState())
    if queue.workers and not queue.asked:
        yield _busy(one, queue, since, f"the workers of task {quoted(one.kind[0])} are busy")
    if task.place > 1:
        before = task.place - 1
        about = "" if task.exact else "about "
        yield WaitingReason(
            step_id=one.id,
            reason=Reason.QUEUED_BEHIND,
            since=since,
            text=f"{named(one)} is at place {about}{task.place} of the queue of task {quoted(one.kind[0])}, with "
            f"{before} task{'s' if before > 1 else ''} before it: more workers make it faster (`penstock task list`)",
            details={"place": task.place},
        )


def _busy(one: WaitingExecution, queue: QueueState, since: str, who: str) -> WaitingReason:
    return WaitingReason(
        step_id=one.id,
        reason=Reason.WORKERS_BUSY,
        since=since,
        text=f"{named(one)} waits, because {who}, {queue.busy} of {queue.slots} slots: wait, start more workers, or "
        "give them more slots (max_tasks)",
        details={"busy": queue.busy, "slots": queue.slots},
    )


def _of_delivered(one: WaitingExecution, facts: LiveFacts, task: QueuedTask) -> Iterator[WaitingReason]:
    """A worker was given its task, and has not said for a while that it has begun it."""
    if facts.now - task.at < UNBEGUN_S:
        return
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.WORKER_SILENT,
        since=rfc3339(task.at),
        text=f"a worker was given {named(one)} and has not said that it has begun it: without an answer it is "
        "delivered again (`penstock worker list` shows who is there)",
        details={},
    )


def _of_bound_worker(run: Run, one: WaitingExecution, facts: LiveFacts, worker_id: str) -> Iterator[WaitingReason]:
    sign, since = facts.signs.get(one.id), _since(run, one, facts)
    fallback = None if one.step.fallback is None else rfc3339(one.step.fallback)
    later = "" if fallback is None else f", and goes to any other one at {fallback}"
    if sign is not None and sign.silent:
        way_out = f"start worker {quoted(worker_id)} again, or cancel the run" if not later else "wait"
        yield WaitingReason(
            step_id=one.id,
            reason=Reason.STICKY_WORKER_GONE,
            since=since,
            text=f"{named(one)} is bound to worker {quoted(worker_id)}, which is not there{later}: {way_out}",
            until=fallback,
            details={"worker_id": worker_id},
        )
        return
    queue = facts.bound.get(one.id)
    if queue is not None and not queue.asked:
        yield _busy(one, queue, since, f"worker {quoted(worker_id)}, to which it is bound, is busy")


def _delivered_again(sign: SignOfLife) -> str:
    if sign.until is None:
        return "its task is delivered to another one, if it is not acknowledged"
    return f"unless it answers, its task is delivered to another one at {rfc3339(sign.until)} at the latest"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
