"""The facts about the world that explain why one run waits. Each is read when it is asked for; nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from penstock.actors.diagnosis.engine_progress import engine_progress
from penstock.actors.diagnosis.limits import slot_waits
from penstock.actors.diagnosis.registrations import RegisteredWorker, Registrations, registrations
from penstock.broker import record_keys
from penstock.broker.inspection.queue_places import bound_progress, place_of, queue_progress, stored_tasks
from penstock.broker.nats.direct import Stored
from penstock.broker.records.leases import StoredLease
from penstock.broker.store import Store
from penstock.broker.streams.consumers import ConsumerProgress
from penstock.broker.worker_messages import decode
from penstock.config.limits import ACK_WAIT_S, BRIDGE_LEASE_S, WORKER_HEARTBEAT_S
from penstock.config.process.background import all_of, both
from penstock.engine.access.scopes import Caller
from penstock.engine.run.events import Malformed
from penstock.engine.run.events import decode as decode_event
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.engine.waiting.awaited import Awaited, WaitingExecution, executions
from penstock.engine.waiting.facts import LiveFacts, QueuedTask, QueueState, SignOfLife, TaskKind

KINDS_MAX = 20  # task types of one run whose queues are read
TASKS_MAX = 20  # executions of one run whose places are read
LATE_S = 10.0  # a registration that was not renewed for so long after its time is of a silent worker
QUIET_S = 60.0  # a worker without a registration that has a task over HTTP, and asked for nothing for so long
OF_WORKERS = frozenset({Awaited.QUEUE, Awaited.WORKER, Awaited.ASIDE})


class _Queue(Struct, frozen=True):
    progress: ConsumerProgress | None
    tasks: Sequence[Stored]


class AskedRun(NamedTuple):
    """The run that is asked about, with its definition, the last event in its log, and who asks."""

    workflow: Workflow | None
    run: Run
    last: Stored
    caller: Caller


async def live_facts(
    store: Store, asked: AskedRun, storage_problem: Callable[[], Coroutine[Any, Any, str]], now: float
) -> LiveFacts:
    """What `explain` needs to know for this run. `storage_problem` says why nothing is stored, `now` is the broker's
    time. Raises Unavailable."""
    workflow, run, last, caller = asked
    of_service = both(engine_progress(store, run.run_id, last.seq, now), storage_problem())
    of_run = _of_workers(store, run, executions(workflow, run), now)
    (engine, storage), facts = await both(of_service, of_run)
    limits = await slot_waits(store, workflow, run, caller)
    return structs.replace(facts, engine=engine, storage=storage, changed_at=last.at, limits=limits)


async def _of_workers(store: Store, run: Run, given: Sequence[WaitingExecution], now: float) -> LiveFacts:
    """The facts about the executions that workers carry out, or are to."""
    waiting = [one for one in given if one.awaits in OF_WORKERS]
    if not waiting:
        return LiveFacts(now)
    queued = [one for one in waiting if one.awaits is Awaited.QUEUE and one.step.sticky is None][:TASKS_MAX]
    kinds = list(dict.fromkeys(one.kind for one in waiting))[:KINDS_MAX]
    known, read = await both(registrations(store), _queues(store, run, kinds, {one.kind for one in queued}))
    begun_by = await _begun_by(store, run, waiting)
    bound, signs = await both(_bound(store, waiting, known), _signs(store, run, waiting, begun_by, known, now))
    states, tasks = await both(_states(store, known, read), _tasks(store, read, queued))
    return LiveFacts(now, queues=states, tasks=tasks, bound=bound, begun_by=begun_by, signs=signs)


async def _queues(store: Store, run: Run, kinds: Iterable[TaskKind], wanted: set[TaskKind]) -> dict[TaskKind, _Queue]:
    async def one(kind: TaskKind) -> tuple[TaskKind, _Queue]:
        progress = await queue_progress(store.broker, *kind)
        return kind, _Queue(progress, await stored_tasks(store.reader, *kind, run.run_id) if kind in wanted else ())

    return dict(await all_of(map(one, kinds)))


async def _states(store: Store, known: Registrations, read: Mapping[TaskKind, _Queue]) -> dict[TaskKind, QueueState]:
    async def one(kind: TaskKind, queue: _Queue) -> tuple[TaskKind, QueueState]:
        serving, asked = known.serving(kind), queue.progress is not None and queue.progress.asked
        slots = sum(worker.entry.max_tasks for worker in serving)
        busy = 0 if asked or not serving else await _in_hand(store, serving, kind, queue.progress)
        return kind, QueueState(len(serving), slots, min(busy, slots), known.elsewhere(kind), asked)

    return dict(await all_of(one(kind, queue) for kind, queue in read.items()))


async def _in_hand(
    store: Store, serving: Sequence[RegisteredWorker], kind: TaskKind, progress: ConsumerProgress | None
) -> int:
    """How many tasks of any type the workers of this kind may have in hand: their slots are for all their types."""
    others = list({other for worker in serving for other in worker.kinds} - {kind})[:KINDS_MAX]
    found = await all_of(queue_progress(store.broker, *other) for other in others)
    return sum(one.in_hand for one in (progress, *found) if one is not None)


async def _tasks(
    store: Store, read: Mapping[TaskKind, _Queue], queued: Iterable[WaitingExecution]
) -> dict[str, QueuedTask]:
    async def one(waiting: WaitingExecution, stored: Stored) -> tuple[str, QueuedTask]:
        progress = read[waiting.kind].progress
        place = await place_of(store.broker, store.reader, *waiting.kind, stored.seq, progress)
        return waiting.id, QueuedTask(stored.at, place.number, place.exact)

    found = ((waiting, _task_of(waiting, read.get(waiting.kind))) for waiting in queued)
    return dict(await all_of(one(waiting, stored) for waiting, stored in found if stored is not None))


def _task_of(waiting: WaitingExecution, queue: _Queue | None) -> Stored | None:
    """The stored task of this execution; None: it is not in the queue."""
    wanted = (waiting.id, waiting.step.iteration, waiting.step.attempts)
    for stored in queue.tasks if queue is not None else ():
        try:
            task = decode(stored.data)
        except msgspec.MsgspecError:
            continue
        if (task.step_id, task.iteration, task.attempt) == wanted:
            return stored
    return None


async def _bound(store: Store, waiting: Iterable[WaitingExecution], known: Registrations) -> dict[str, QueueState]:
    """The queues of the workers that executions are bound to."""

    async def one(execution: WaitingExecution, worker_id: str) -> tuple[str, QueueState]:
        progress = await bound_progress(store.broker, execution.kind[0], worker_id)
        worker = known.workers.get(worker_id)
        slots = 0 if worker is None else worker.entry.max_tasks
        return execution.id, QueueState(int(worker is not None), slots, slots, asked=bool(progress and progress.asked))

    bound = [(one, one.step.sticky) for one in waiting if one.awaits is Awaited.QUEUE][:TASKS_MAX]
    return dict(await all_of(one(execution, worker) for execution, worker in bound if worker is not None))


async def _begun_by(store: Store, run: Run, waiting: Iterable[WaitingExecution]) -> dict[str, str]:
    """The workers of elements: the state has only where their start lies in the history."""

    async def one(execution: WaitingExecution) -> tuple[str, str | None]:
        stored = await store.history.at(run.run_id, execution.begun_seq)
        try:
            return execution.id, None if stored is None else getattr(decode_event(stored.data), "worker_id", None)
        except Malformed:
            return execution.id, None

    unknown = [one for one in waiting if one.awaits is Awaited.WORKER and one.begun_seq and one.step.worker_id is None]
    return {key: worker_id for key, worker_id in await all_of(map(one, unknown)) if worker_id is not None}


async def _signs(
    store: Store,
    run: Run,
    waiting: Iterable[WaitingExecution],
    begun_by: Mapping[str, str],
    known: Registrations,
    now: float,
) -> dict[str, SignOfLife]:
    """Of the workers that have begun executions, or that executions are bound to."""
    with_worker = {}
    for one in waiting:
        worker_id = one.step.sticky if one.awaits is Awaited.QUEUE else one.step.worker_id or begun_by.get(one.id)
        if worker_id is not None:
            with_worker[one.id] = worker_id
    leases = (
        await store.leases.many([record_keys.step_key(run.run_id, key) for key in with_worker]) if with_worker else {}
    )
    return {
        key: _sign(known.workers.get(worker_id), leases.get(record_keys.step_key(run.run_id, key)), worker_id, now)
        for key, worker_id in with_worker.items()
    }


def _sign(worker: RegisteredWorker | None, kept: StoredLease | None, worker_id: str, now: float) -> SignOfLife:
    seen_at = kept.lease.seen_at if kept is not None and kept.lease.worker_id == worker_id else None
    if worker is None and seen_at is None:
        return SignOfLife()
    at = max(worker.at if worker is not None else 0.0, seen_at or 0.0)
    allowed_s = QUIET_S if worker is None else WORKER_HEARTBEAT_S + LATE_S
    until = WORKER_HEARTBEAT_S + ACK_WAIT_S if seen_at is None else BRIDGE_LEASE_S
    return SignOfLife(at, silent=now - at >= allowed_s, until=at + until)
