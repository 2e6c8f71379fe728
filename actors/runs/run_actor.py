"""The actor of one run: it alone changes the run's state, by folding the run's history in order.

One turn: take all pending events, decode them, advance the run, and carry out the commands. With that the events are
handled. Those of a run that needs a snapshot (actor_state.py) are handled when it covers them: it follows within
SNAPSHOT_AFTER_S, at once when the run has ended. A crash between any two of these lines repeats them: the broker
delivers the events again, and repeats are stopped by message ids or by the guards of `advance`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container

from msgspec import Struct

from penstock.actors.runs.actor_state import (
    IN_LOG,
    NOT_DUE,
    RELOAD_DUE,
    SAVE_DUE,
    SAVED,
    TURN_DUE,
    UNSAVED,
    ActorState,
    needs_snapshot,
)
from penstock.actors.runs.dead_letters import EventDeadLetters, event_of, is_expected
from penstock.actors.runs.effects import Effects
from penstock.actors.runs.end_state import OwnEnd, carries_state
from penstock.actors.runs.loading import FAILED, LoadedRun, Owner, advance_safely, load
from penstock.actors.runs.new_runs import workflow_of_new
from penstock.actors.runs.putting_away import is_put_away, put_away, remove_run, take_late, until_archived
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease
from penstock.actors.runs.shared.mailbox import Backlog, PartitionQueue, PendingEvent, observe
from penstock.actors.runs.shared.run_metrics import RunMetrics
from penstock.actors.runs.shared.snapshot_queue import SnapshotQueue
from penstock.actors.runs.shared.turn_queue import TurnQueue
from penstock.actors.runs.shared.upgrade_checks import UPGRADE_TIMER, is_upgrade_check
from penstock.actors.runs.timers import Timers
from penstock.broker.archive.archived_runs import is_archive_mark
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store
from penstock.config.limits import ACTOR_IDLE_S, EVENT_FAILURES_MAX, UPGRADE_CHECK_S
from penstock.config.logging import get_logger
from penstock.config.process.background import begin
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, NeedsUpgrade, TooLarge, Unavailable
from penstock.engine.run.commands import Command, SetTimer
from penstock.engine.run.events import Malformed, Record
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.run.timers import asleep_until, live_timers
from penstock.engine.run.workflow import Workflow

AGAIN_S = 0.2

log = get_logger()


class RunDeps(Struct, frozen=True):
    """What the actors of a shard need, made by the shard once. `loads` bounds the runs that are read at once. `leave`
    makes the shard forget an actor that has nothing left to do, `rest` one whose run sleeps for long."""

    store: Store
    lease: ShardLease
    clock: BrokerClock
    timers: Timers
    effects: Effects
    metrics: RunMetrics
    backlog: Backlog
    snapshots: SnapshotQueue
    dead_letters: EventDeadLetters
    turns: TurnQueue
    loads: asyncio.Semaphore
    leave: Callable[[RunActor], None]
    rest: Callable[[RunActor], None]


class RunActor:
    """Owned by a shard, from the run's first event until the run has ended or was idle for long. Its task lives while
    there is work."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_carried_out",
        "_counted",
        "_current",
        "_deps",
        "_failures",
        "_in_turn",
        "_pending",
        "_removed",
        "_revision",
        "_state",
        "_traced",
        "_unsaved",
        "_workflow",
        "active_at",
        "asleep",
        "queue",
        "run",
        "run_id",
        "task",
        "waits",
    )

    def __init__(self, deps: RunDeps, run_id: str, queue: PartitionQueue) -> None:
        self._deps, self.run_id, self.queue = deps, run_id, queue
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self.waits = False  # for its turn
        self.active_at = 0.0
        self.asleep = False  # until later than an idle run stays in memory
        self._workflow: Workflow | None = None
        self._revision, self._current = 0, False
        self._state = SAVED
        self._pending: list[PendingEvent] = []
        self._unsaved: list[PendingEvent] = []
        self._in_turn = self._failures = self._removed = self._counted = self._carried_out = 0
        self._ahead = self._ahead_bytes = 0  # events in the log that the snapshot lacks
        self._traced = deps.metrics.traces(run_id)

    @property
    def idle(self) -> bool:
        """Nothing waits, and the snapshot is up to date."""
        return self.task is None and not self._pending and not self._unsaved

    @property
    def current_revision(self) -> int:
        """The revision of the snapshot that is equal to the state in memory; 0: there is none."""
        return self._revision if self._current and self._state is SAVED else 0

    def deliver(self, event: PendingEvent) -> None:
        self._pending.append(event)
        self._begin()

    def save_soon(self) -> None:
        """Write the snapshot in the actor's next turn, if the state is ahead of it and needs one."""
        if self._state is UNSAVED:
            self._state = SAVE_DUE
            self._begin()
        elif self._state is IN_LOG and self.run is not None:
            self._look_asleep(self.run)
            if self.asleep and self.idle:
                self._deps.rest(self)

    def dismiss(self) -> None:
        """Stop at once: the run has another owner."""
        if self.task is not None:
            self.task.cancel()
        events, self._pending = self._pending, []
        self._deps.backlog.remove(events)

    def _begin(self) -> None:
        if self.task is None and not self.waits:
            self.waits = True
            self._deps.turns.add(self._begin_work)

    def _begin_work(self) -> None:
        self.waits = False
        if self.queue.owned:  # else the shard has forgotten it meanwhile
            self.task = begin(self._work(), name="run")

    async def _work(self) -> None:
        """Turn after turn until nothing waits. An error here never touches another run."""
        try:
            while self._pending or self._state in TURN_DUE:
                await self._turn()
        except LeaseLost as error:
            if not self.queue.owned:
                return  # the run has another owner; the shard is about to forget this actor
            await self._start_over(error)  # a heartbeat that was answered late may renew the lease
        except Exception as error:
            await self._start_over(error)
        finally:
            self.task = None
            self.active_at = time.monotonic()
        if self._pending or self._state in TURN_DUE:
            self._begin()
        elif self.asleep and self.idle:
            self._deps.rest(self)

    async def _turn(self) -> None:
        deps = self._deps
        deps.lease.check()
        events = self._pending[:]  # they stay in the mailbox until they are carried out: an error loses none
        self._in_turn = len(events)
        archived, upgraded = until_archived(events), any(is_upgrade_check(event) for event in events)
        if archived or ((upgraded or self._workflow is None) and not await self._open(events, upgraded=upgraded)):
            await self._without_run(events, archived)
            return
        before = self.run
        commands = self._advance(events)
        if self.run is not None and self.run.removed:
            self._removed = self.run.seq
            await self._without_run(events)
            return
        if self.run is not None and (self.run is not before or self._is_behind_end(self.run, events)):
            self._changed(self.run, events)
        reached("shard.advanced")
        if commands:
            assert self.run is not None
            assert self._workflow is not None
            end = await deps.effects.perform(self._workflow, self.run, commands, events[0].received, events)
            if end is not None:
                self._take_end(self._workflow, self.run, end)
        reached("shard.published")
        self._carried_out = events[-1].delivery.seq if events else self._carried_out
        observe(deps.metrics.handling, events)
        del self._pending[: len(events)]
        self._in_turn = 0  # what waits now came later, and is not the cause of an error from here on
        deps.backlog.remove(events)
        self._unsaved += events
        await self._settle()

    def _is_behind_end(self, run: Run, events: list[PendingEvent]) -> bool:
        """Whether these events, which change nothing, have come behind an end that carries the state: it is not the
        last event any more by which readers and pruning know that all is done, so the run needs a snapshot."""
        is_later = bool(events) and events[-1].delivery.seq > run.seq
        return is_later and run.ended and self._state is SAVED and not self._current

    def _changed(self, run: Run, events: list[PendingEvent]) -> None:
        """Note how the state, which these events have changed, stands to its snapshot now."""
        self.asleep = False
        self._ahead += len(events)
        self._ahead_bytes += sum([len(event.delivery.data) for event in events])
        if carries_state(run, events[-1].delivery):
            self._state, self._current = SAVED, False
        elif self._state in NOT_DUE:
            self._state = self._needed(run)

    def _take_end(self, workflow: Workflow, before: Run, end: OwnEnd) -> None:
        """Fold the end that is stored now: what the broker will deliver of it is handled already."""
        self.run = end.run
        self._state, self._current = SAVED, False
        self._count(expanded(workflow, before), before, end.run, Record(end.run.seq, 0.0, end.event))
        if all(event.delivery.seq != end.run.seq for event in self._pending):
            self.queue.ends.add(end.run.seq)

    def _needed(self, run: Run) -> ActorState:
        lasting = self._deps.store.history.keeps_all
        return UNSAVED if needs_snapshot(run, self._ahead, self._ahead_bytes, lasting=lasting) else IN_LOG

    async def _without_run(self, events: list[PendingEvent], archived: int = 0) -> None:
        """Deal with events of a run that is not there: the first `archived` of them say that the archive has it. What
        is stored of a removed one goes, and what has come late for it; its removal stays for a while."""
        store = self._deps.store
        if archived:
            self._deps.snapshots.remove(self.run_id)
            await put_away(store, self.run_id, events[:archived])
            reached("shard.run_put_away")
            self._forget(archived)
        elif self._removed:
            self._deps.snapshots.remove(self.run_id)
            await remove_run(store, self.run_id, self._removed, events)
            reached("shard.run_removed")
            self._forget(len(events))
        elif await is_put_away(store, self.run_id):
            await take_late(store, events)
            self._discard(len(events))
        else:
            self._give_up("the run was never started, or its definition is not in the store")

    def _forget(self, handled: int) -> None:
        self.run, self._workflow, self._revision, self._current = None, None, 0, False
        self._discard(handled)

    def _advance(self, events: list[PendingEvent]) -> list[Command]:
        commands: list[Command] = []
        workflow = self._workflow
        assert workflow is not None
        for pending in events:
            delivery = pending.delivery
            if is_archive_mark(delivery.data):
                continue
            try:
                event = pending.event or event_of(self.run_id, delivery.data)
            except Malformed as error:
                self._dead_letter(pending, str(error))
                continue
            before, record = self.run, Record(delivery.seq, delivery.at, event)
            self.run, ordered = advance_safely(workflow, before, record)
            if ordered is FAILED:
                self._dead_letter(pending, "the engine failed at this event, its log says where")
            self._count(expanded(workflow, self.run), before, self.run, record)
            commands += ordered
        return commands

    def _dead_letter(self, event: PendingEvent, error: str) -> None:
        self._deps.dead_letters.keep(self.queue, self.run_id, event, error)

    def _count(self, workflow: Workflow, before: Run | None, run: Run | None, record: Record) -> None:
        """Count each event once for run metrics, also when it is folded again after an error."""
        if record.seq > self._counted:
            self._counted = record.seq
            self._deps.metrics.folded(workflow, before, run, record, self._traced)

    async def _settle(self) -> None:
        """Write the snapshot if it is due, else put the run into the snapshot queue."""
        run = self.run
        if run is None or self._state is SAVED:
            self._state = SAVED
            self._handled()
        elif self._state in TURN_DUE or run.ended:
            await self._save(run)
        else:
            self._deps.snapshots.add(self.run_id)
            if self._state is IN_LOG:
                self._handled()
        self._failures = 0
        if (run is None or run.ended) and not self._pending and not self._unsaved:
            self._deps.leave(self)
            reached("shard.left")

    async def _save(self, run: Run) -> None:
        """Replace the snapshot by a newer one; then, and only then, the events that it covers are handled."""
        self._deps.snapshots.remove(self.run_id)
        body = to_snapshot(run)
        self._deps.lease.check()
        try:
            self._current = False
            self._revision = ack_seq(await self._deps.store.runs.send(self.run_id, body, self._revision))
            self._current = True
            reached("shard.snapshot_written")
        except Conflict:
            if not await self._settle_conflict(body):
                return
        except TooLarge as error:  # the log has everything; reading the run just takes longer
            log.warning("snapshot_too_large", run_id=self.run_id, error=str(error))
        self._state, self._ahead, self._ahead_bytes = SAVED, 0, 0
        self._look_asleep(run)
        self._handled()

    def _look_asleep(self, run: Run) -> None:
        self.asleep = (asleep_until(run) or 0.0) > self._deps.clock.now() + ACTOR_IDLE_S

    async def _settle_conflict(self, body: bytes) -> bool:
        """Someone wrote before us. Returns True if it was this actor, whose answer got lost; else the state comes from
        the log."""
        entry = await self._deps.store.runs.get(self.run_id)
        if entry is not None and entry.value == body:
            self._revision, self._current = entry.revision, True
            return True
        log.warning("snapshot_conflict", run_id=self.run_id, revision=self._revision)
        await self._resume(await self._load(self.queue.start), time.monotonic(), True)
        if self._state in NOT_DUE:
            self._handled()
        else:
            self._state = SAVE_DUE
        return False

    def _handled(self) -> None:
        """Every event that was carried out is handled: the snapshot covers it, or none is needed."""
        handled, self._unsaved = self._unsaved, []
        for event in handled:
            event.handled = True
        if handled:
            observe(self._deps.metrics.commit, handled)

    async def _open(self, events: list[PendingEvent], *, upgraded: bool) -> bool:
        """Get the run's definition and state; False when nothing was ever started under this id. With `upgraded`, an
        older version may have left earlier events to this one."""
        self._check_owned()
        if events and not events[0].redelivered and not upgraded:
            self._workflow = await workflow_of_new(self._deps.store, self.run_id, events[0])
        if self._workflow is not None and not upgraded:
            return True
        repeat = not events or any(event.redelivered for event in events)
        if upgraded:
            loaded = await self._load(0)
        elif repeat:
            loaded = await self._load(self.queue.start)
        else:
            loaded = await self._load(events[0].delivery.seq, self.queue.current)
        self.queue.current.discard(loaded.revision)
        self._removed = loaded.removed
        if loaded.workflow is None:
            return False
        reached("shard.loaded")
        self._check_owned()
        await self._resume(loaded, events[0].received if events else time.monotonic(), repeat)
        reached("shard.resumed")
        return True

    def _check_owned(self) -> None:
        """Raise LeaseLost if the shard has given up the partition."""
        if not self.queue.owned:
            raise LeaseLost("the partition has another owner")

    async def _load(self, handled_before: int, current: Container[int] = ()) -> LoadedRun:
        """Read the run from the store. A bounded number are read at once: thousands together would all be late."""
        async with self._deps.loads:
            owner = Owner(handled_before, self._count)
            return await load(self._deps.store, self.run_id, owner=owner, current=current, by_index=False)

    async def _resume(self, loaded: LoadedRun, since: float, repeat: bool) -> None:
        """Take over the state of the log and carry out what may not have been carried out.

        `repeat` says that a former owner may have seen these events. What it had in memory are the timers that are
        younger than its last acknowledgement. Without it, every timer is in this shard's memory or the broker's
        already.
        """
        if self.queue.start <= self._carried_out and 0 < loaded.last_seq < self._carried_out:
            # a leader that is behind its copies
            raise Unavailable("the log was read before it had all that this run was advanced by")
        self.run, self._workflow, self._revision = loaded.run, loaded.workflow, loaded.revision
        self._ahead, self._ahead_bytes = loaded.beyond, loaded.beyond_bytes
        self._current = loaded.revision > 0 and not loaded.beyond and not loaded.carried
        if not loaded.beyond or self.run is None:
            self._state = SAVED
        elif self._state is not RELOAD_DUE:
            self._state = self._needed(self.run)
        if self.run is None or self._workflow is None:
            return
        await self._deps.effects.perform(self._workflow, self.run, list(loaded.due), since)
        for timer in live_timers(self.run) if repeat else ():
            self._deps.timers.arm(self.run_id, timer, since, maybe_stored=True)

    def _give_up(self, why: str) -> None:
        """Store the events of this turn as dead letters, so that they do not block the whole partition. Later events
        have their own turn."""
        for event in self._pending[: self._in_turn]:
            if not is_expected(event):
                self._dead_letter(event, why)
        self._discard(self._in_turn)

    def _wait_for_upgrade(self, error: NeedsUpgrade) -> None:
        """Leave the run to a newer version. A timer wakes its owner later, which then does what is still to be
        done."""
        log.error("run_waits_for_upgrade", run_id=self.run_id, reason=str(error))
        since = min((event.received for event in self._unsaved + self._pending), default=time.monotonic())
        due = self._deps.clock.now() + UPGRADE_CHECK_S
        timer = SetTimer(UPGRADE_TIMER, due, attempt=int(due * 1000))  # no two are the same
        self._deps.timers.arm(self.run_id, timer, since)
        self._discard(len(self._pending))

    def _discard(self, count: int) -> None:
        """Count the first pending events as handled, without having applied them; the actor leaves if none is left."""
        events, self._pending = self._pending[:count], self._pending[count:]
        self._state, self._failures = SAVED, 0
        for event in events:
            event.handled = True
        self._deps.backlog.remove(events)
        self._handled()
        if not self._pending:
            self._deps.leave(self)

    async def _start_over(self, error: Exception) -> None:
        """Drop the state and read it from the log again; events that fail again and again become dead letters."""
        self.run, self._workflow, self._revision, self._current = None, None, 0, False
        self._state = RELOAD_DUE
        if isinstance(error, NeedsUpgrade):
            self._wait_for_upgrade(error)
            return
        if isinstance(error, Unavailable):
            log_rate_limited(log, "run_waits_for_broker", run_id=self.run_id, error=str(error))
        else:
            self._failures += 1
            log.error("run_failed_to_advance", run_id=self.run_id, failures=self._failures, exc_info=error)
        if self._failures >= EVENT_FAILURES_MAX:
            self._give_up(f"{type(error).__name__}: {error}")
            return
        await asyncio.sleep(AGAIN_S)
        await self._deps.lease.until_good()  # thousands that tried again meanwhile would delay the heartbeat
