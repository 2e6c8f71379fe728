"""Operations on one run. Each appends to the run's history and changes nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from itertools import repeat

from msgspec import Raw, Struct

from penstock.actors.runs.loading import LoadedRun, load
from penstock.broker import message_ids
from penstock.broker.archive.archived_runs import ArchivedAt, RunRestored, encode_archive_mark
from penstock.broker.nats.buckets import Entry
from penstock.broker.records.imports import mark_in
from penstock.broker.run_ids import keyed_run_id, new_run_id
from penstock.broker.store import Store
from penstock.broker.streams.dead_letters import DeadLetter
from penstock.broker.worker_protocol import signals
from penstock.config.process.author import author
from penstock.config.process.crash_points import reached
from penstock.config.process.traces import caller_trace
from penstock.engine.definition.definitions import WorkflowDef, run_limits
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.run.event_payloads import LABELS_FORMAT, Cancellation, Resumed, Scheduled, Started, TriggerRef
from penstock.engine.run.events import Event, WorkflowCancelled, WorkflowResumed, WorkflowScheduled, WorkflowStarted
from penstock.engine.run.state import Run, RunStatus, StepStatus
from penstock.engine.times import rfc3339

HOLDS_FORMAT = 2  # of a resumption that holds a step: versions that read format 1 only would begin the step
CANCEL_TRIES_MAX = 10  # each one overtaken by a resume of the run


class Begun(Struct, frozen=True):
    """`scheduled`: the run starts later. `seq` is the sequence of its first event. `is_new`: this request has started
    it, nobody before."""

    run_id: str
    scheduled: bool = False
    seq: int = 0
    is_new: bool = False


class BegunAll(Struct, frozen=True):
    """Ids in the order of the inputs; `seq` is the sequence of the last run's first event."""

    run_ids: list[str]
    seq: int


def now() -> str:
    """This moment, RFC 3339, UTC."""
    return rfc3339(time.time())


def id_of_run(workflow: str, key: str | None) -> str:
    """The id that a run gets which is started now: with a key, always the same."""
    return new_run_id() if key is None else keyed_run_id(workflow, key)


async def start(store: Store, definition: WorkflowDef, digest: str, value: Raw, key: str | None = None) -> str:
    """As `begin`; returns the id only."""
    return (await begin(store, definition, digest, value, key)).run_id


async def begin(
    store: Store,
    definition: WorkflowDef,
    digest: str,
    value: Raw,
    key: str | None = None,
    run_id: str | None = None,
    trigger: TriggerRef | None = None,
    labels: dict[str, str] | None = None,
) -> Begun:
    """Start one run. With a key, a second call returns the first run. `run_id` is one that was made for it before,
    `trigger` says what starts it.

    Raises Unavailable (outcome unknown).
    """
    run_id = run_id or id_of_run(definition.name, key)
    event = started(run_id, definition, digest, value, now(), trigger=trigger, labels=labels)
    if key is None:
        return Begun(run_id, seq=await store.history.append(event), is_new=True)
    try:
        seq = await store.history.append(event, expect_seq=0)
    except Conflict:  # it was started before, perhaps by a request whose answer got lost
        return Begun(run_id, seq=await begun_before(store, run_id))
    reached("run.started")
    return Begun(run_id, seq=seq, is_new=True)


async def start_all(store: Store, definition: WorkflowDef, digest: str, values: Sequence[Raw]) -> list[str]:
    """As `begin_all`; returns the ids only."""
    return (await begin_all(store, definition, digest, values)).run_ids


async def begin_all(
    store: Store,
    definition: WorkflowDef,
    digest: str,
    values: Sequence[Raw],
    key: str | None = None,
    labels: Sequence[dict[str, str] | None] | None = None,
) -> BegunAll:
    """Start up to 1,000 runs, all or none. With a key, a second call returns the first runs. `labels` are those of each
    run.

    Raises Conflict for a key that was used for another number of inputs, Unavailable (outcome unknown).
    """
    at, many = now(), range(len(values))
    run_ids = [new_run_id() if key is None else _one_of_keyed(definition.name, key, number) for number in many]
    of_each = labels or repeat(None, len(values))
    events = [
        started(run_id, definition, digest, value, at, labels=own)
        for run_id, value, own in zip(run_ids, values, of_each, strict=True)
    ]
    if key is None:
        seq = await store.history.append_all(events)
    else:
        try:
            seq = await store.history.append_first(events)
        except Conflict:  # as in begin
            return await _begun_before(store, definition.name, key, events)
    reached("runs.started")
    return BegunAll(run_ids, seq)


async def schedule(
    store: Store,
    definition: WorkflowDef,
    digest: str,
    value: Raw,
    run_at: datetime,
    key: str | None = None,
    labels: dict[str, str] | None = None,
) -> Begun:
    """Let the broker start one run at `run_at`. With a key, a second call returns the first run.

    Raises Unavailable (outcome unknown).
    """
    run_id = id_of_run(definition.name, key)
    at = rfc3339(run_at.timestamp())
    payload = Scheduled(definition.name, definition.version, digest, at, value, labels, author())
    event = WorkflowScheduled(run_id=run_id, timestamp=now(), payload=payload, v=LABELS_FORMAT if labels else 1)
    try:
        seq = await store.history.schedule(event, started(run_id, definition, digest, value, at, labels=labels))
        reached("run.scheduled")
        return Begun(run_id, scheduled=True, seq=seq)
    except Conflict:  # as in begin
        first = await begun_before(store, run_id)
        return Begun(run_id, scheduled=(await get(store, run_id)).run_at is not None, seq=first)


async def cancel(store: Store, run_id: str, reason: str | None = None, *, compensate: bool = False) -> RunStatus:
    """Cancel a run, if it is not cancelled yet; with `compensate` it undoes its steps first. Returns its status:
    cancelled, or compensating.

    Raises NotFound, Conflict for a run that has ended otherwise or undoes its steps already, Unavailable.
    """
    run = await get(store, run_id)
    event = WorkflowCancelled(run_id=run_id, timestamp=now(), payload=Cancellation(reason, compensate))
    if run.status is RunStatus.SCHEDULED:
        if await store.history.append_unless_started(event):
            return RunStatus.CANCELLED
        run = await get(store, run_id)  # it has just started, or was cancelled by another request
    for _ in range(CANCEL_TRIES_MAX):
        if run.status is RunStatus.CANCELLED:
            return run.status
        if run.ended or run.status is RunStatus.COMPENSATING:
            raise Conflict(f"run {run_id} is {run.status} already")
        await store.history.append(event, message_id=message_ids.of_cancellation(run_id, run.resumes))
        reached("run.cancelled")
        run = await get(store, run_id)  # another end may have come into the log before this one
        if compensate and is_cancelled(run):
            return run.status
    if run.status is not RunStatus.CANCELLED:
        raise Unavailable(
            f"run {run_id} is {run.status}, though it was cancelled {CANCEL_TRIES_MAX} times: others resume it"
        )
    return run.status


def is_cancelled(run: Run) -> bool:
    """Whether the run is cancelled, or will be when it has undone its steps."""
    return run.status is RunStatus.CANCELLED or (
        run.status is RunStatus.COMPENSATING
        and run.compensation is not None
        and run.compensation.ends is RunStatus.CANCELLED
    )


async def unschedule(store: Store, run_id: str) -> None:
    """Cancel a scheduled run before it starts: exactly one of several concurrent calls succeeds, or none when it
    starts.

    Raises NotFound for a run that is not scheduled (any more), Conflict for a paused one that others have just changed,
    Unavailable (outcome unknown).
    """
    run = await get_scheduled(store, run_id)
    event = WorkflowCancelled(run_id=run_id, timestamp=now())
    if run.pause is not None and run.pause.starts:  # its time has come, but it has not started
        if not await store.history.append_next(event, run.seq):
            raise Conflict(f"run {run_id} has just changed: read it again, then retry")
    elif not await store.history.append_unless_started(event):
        raise not_scheduled(await get(store, run_id))
    reached("run.unscheduled")


async def signal(store: Store, run_id: str, name: str, payload: bytes) -> None:
    """Send a signal to a run, whatever its status. Raises NotFound, Unavailable (outcome unknown: it may be sent
    again)."""
    await get(store, run_id)
    await signals.send(store, run_id, name, payload, author())


async def replay(store: Store, run_id: str, snapshot: Entry | None = None) -> None:
    """Resume a failed run at the steps that failed, and remove their dead letters.

    Raises NotFound, Conflict for a run that has not failed (any more), Unavailable (outcome unknown). `snapshot` saves
    a read.
    """
    loaded = await load(store, run_id, snapshot)
    await resume(store, loaded, await resumption(store, run_id, loaded))


async def resume(store: Store, loaded: LoadedRun, event: WorkflowResumed, *following: Event) -> None:
    """Append the resumption, and with it what follows at once, and remove the dead letters of the failed steps. A run
    that is archived is brought back by it.

    Raises Conflict for a run that has changed since it was read, Unavailable (outcome unknown).
    """
    history = store.history
    if loaded.archived:
        place = ArchivedAt(loaded.archived)
        lead = RunRestored(run_id=event.run_id, timestamp=event.timestamp, payload=place)
        done = await history.bring_back(encode_archive_mark(lead), [event, *following], loaded.last_seq)
        reached("run.brought_back")
    elif following:
        done = await history.append_together([event, *following], loaded.last_seq)
    else:
        done = await history.append_next(event, loaded.last_seq)
    if not done:
        raise Conflict(f"run {event.run_id} has just changed: read it again, then retry")
    reached("run.resumed")
    assert loaded.workflow is not None
    # The run's engine does it as well, even if this process dies. Here, it is done before the answer.
    for step_id in event.payload.steps:
        if (plan := loaded.workflow.plan_of(step_id)) is not None:
            await store.dead_letters.remove_task(event.run_id, step_id, plan.task, event.payload.dead_letters)


async def replay_dead_letter(store: Store, seq: int) -> str:
    """Replay the run of a dead letter and return its id. The dead letter of a run that was replayed before is removed.

    Raises NotFound, Conflict with the reason, Unavailable.
    """
    letter, _ = await store.dead_letters.get(seq)
    if letter.kind != "task" or letter.run_id is None:
        raise Conflict(f"dead letter {seq} is of a {letter.kind}, only those of tasks can be replayed")
    try:
        await replay(store, letter.run_id)
    except NotFound as error:
        raise Conflict(f"dead letter {seq} cannot be replayed: {error}") from error
    except Conflict:
        if not await _was_replayed(store, letter):
            raise
    return letter.run_id


async def get(store: Store, run_id: str) -> Run:
    """The run, as fresh as its log. Raises NotFound, Conflict for an imported one, Unavailable."""
    return found(await load(store, run_id), run_id)


async def get_scheduled(store: Store, run_id: str) -> Run:
    """The run, if it is still scheduled. Raises NotFound, also for a run that has started or was cancelled;
    Unavailable."""
    run = await get(store, run_id)
    if run.status is not RunStatus.SCHEDULED:
        raise not_scheduled(run)
    return run


def found(loaded: LoadedRun, run_id: str) -> Run:
    """The run, of which something is wanted. Raises NotFound when there is none, Conflict when it is imported."""
    if loaded.mark is not None:
        raise Conflict(f"run {run_id} is imported: it is a record of what happened elsewhere, and never changes")
    if loaded.run is None:
        raise NotFound(f"run {run_id} does not exist")
    return loaded.run


def resumable(run_id: str, loaded: LoadedRun) -> tuple[str, ...]:
    """The failed steps of a failed run. Raises NotFound, Conflict for a run that has not failed, or has undone its
    steps."""
    run = found(loaded, run_id)
    if run.status is not RunStatus.FAILED:
        raise Conflict(f"run {run_id} is {run.status}, only a failed one can be resumed")
    if run.compensation is not None:
        raise Conflict(f"run {run_id} has undone its steps, so it cannot be resumed: rerun it")
    if loaded.workflow is None:
        raise Conflict(f"run {run_id} cannot go on, its definition is not in the store")
    return tuple(step_id for step_id, step in run.steps.items() if step.status is StepStatus.FAILED)


async def resumption(store: Store, run_id: str, loaded: LoadedRun, holds: str | None = None) -> WorkflowResumed:
    """The event with which a failed run goes on. Raises as `resumable`; Unavailable."""
    steps = resumable(run_id, loaded)
    letters = await store.dead_letters.last_seq()  # later ones are of a later failure
    slots = None if loaded.workflow is None else loaded.workflow.slots
    waits = 0 if slots is None else len(slots.limits)
    payload = Resumed(steps=steps, dead_letters=letters, holds=holds, waits=waits)
    return WorkflowResumed(run_id=run_id, timestamp=now(), payload=payload, v=1 if holds is None else HOLDS_FORMAT)


def started(
    run_id: str,
    definition: WorkflowDef,
    digest: str,
    value: Raw,
    at: str,
    rerun_of: str | None = None,
    trigger: TriggerRef | None = None,
    labels: dict[str, str] | None = None,
) -> WorkflowStarted:
    """The event that begins a run."""
    payload = Started(
        workflow=definition.name,
        version=definition.version,
        digest=digest,
        input=value,
        trigger=trigger,
        rerun_of=rerun_of,
        labels=labels,
        by=author(),
        waits=run_limits(definition),
    )
    needed = LABELS_FORMAT if labels else 1
    return WorkflowStarted(run_id=run_id, timestamp=at, trace_parent=caller_trace(), payload=payload, v=needed)


def _one_of_keyed(workflow: str, key: str, number: int) -> str:
    """The id of one run of a keyed bulk start. A key has no line break, so no single run has this id."""
    return keyed_run_id(workflow, f"{key}\n{number}")


async def _begun_before(store: Store, workflow: str, key: str, events: Sequence[Event]) -> BegunAll:
    """The runs that were started with the key. They were stored together: the last one exists, and none after it. If
    the last is missing, so that their number is not known, those that are not there are started."""
    run_ids = [event.run_id for event in events]
    last_seq = await begun_before(store, run_ids[-1])
    if last_seq and not await store.history.first_seq(_one_of_keyed(workflow, key, len(run_ids))):
        return BegunAll(run_ids, last_seq)
    if not last_seq and (missing := await _cut_off(store, events)):
        return BegunAll(run_ids, await _completed(store, missing))
    raise Conflict(f"this Idempotency-Key was used for another number of inputs, not for {len(run_ids)}")


async def _cut_off(store: Store, events: Sequence[Event]) -> list[Event]:
    """The starts that are missing if what is there is only a part of what was stored together: the broker was full, or
    the last runs were removed."""
    there = await store.history.begun([event.run_id for event in events])
    last = next((event.run_id for event in reversed(events) if event.run_id in there), None)
    if last is None or not await store.history.begins_amid_batch(last):
        return []
    return [event for event in events if event.run_id not in there]


async def _completed(store: Store, missing: Sequence[Event]) -> int:
    """Start these; the sequence of the last."""
    try:
        return await store.history.append_first(missing)
    except Conflict as error:
        raise Unavailable("another request with this Idempotency-Key is starting the runs") from error


async def begun_before(store: Store, run_id: str) -> int:
    """The sequence of the run's first event; 0: it has none. Raises Conflict when an imported run has this id."""
    first = await store.history.first(run_id)
    if first is not None and mark_in(first.data) is not None:
        raise Conflict(f"the run would have the id {run_id}, which is that of an imported run")
    return 0 if first is None else first.seq


async def _was_replayed(store: Store, letter: DeadLetter) -> bool:
    """Whether the run was resumed since the dead letter was written; then the dead letter is removed."""
    run_id, step_id, task = letter.run_id, letter.step_id, letter.task
    assert run_id and step_id and task  # noqa: PT018 - a letter of a task has them
    step = (await get(store, run_id)).steps.get(step_id)
    if step is None or letter.attempts is None or letter.attempts > step.base:
        return False
    await store.dead_letters.remove_task(run_id, step_id, task, letter.seq)
    return True


def not_scheduled(run: Run) -> NotFound:
    return NotFound(f"run {run.run_id} is not scheduled: it is {run.status}")
