"""The actor of one run: it alone changes the run's state, by folding the run's history in order.

One turn: take all mail that waits, decode it, advance the run, carry out the commands, and remember that the state is
ahead of its snapshot. The snapshot follows within SNAPSHOT_AFTER_S (at once when the run has ended), and only what a
snapshot covers counts as handled. A crash between any two of these lines repeats them: the broker delivers the mail
again, and repeats die on message ids or on `advance`'s guards.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from penstock.actors.runs.effects import perform
from penstock.actors.runs.lease import LeaseLost
from penstock.actors.runs.loading import FAILED, Loaded, advance_safely, load, waited_for_its_time
from penstock.actors.runs.mailbox import Lane, Mail, observe
from penstock.broker.nats.publisher import ack_seq
from penstock.config.limits import EVENT_FAILURES_MAX, UPGRADE_LOOK_S
from penstock.config.logging import get_logger
from penstock.config.process.background import begin
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, NeedsUpgrade, NotFound, TooLarge, Unavailable
from penstock.engine.run.commands import Command, SetTimer
from penstock.engine.run.events import Malformed, Record, WorkflowScheduled, WorkflowStarted, decode
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.run.timers import live_timers
from penstock.engine.run.workflow import Workflow

if TYPE_CHECKING:
    from penstock.actors.runs.shard import Shard

AGAIN_S = 0.2
UPGRADE_TIMER = "upgrade"  # of no step: to `advance` it is nothing

log = get_logger()


class RunActor:
    """Owned by a shard, from the run's first mail until it has ended or was idle for long. Its task lives while there
    is work."""

    __slots__ = (
        "_counted",
        "_failures",
        "_looked_at",
        "_mail",
        "_revision",
        "_save_now",
        "_saved",
        "_shard",
        "_traced",
        "_unsaved",
        "_workflow",
        "active_at",
        "lane",
        "run",
        "run_id",
        "task",
    )

    def __init__(self, shard: Shard, run_id: str, lane: Lane) -> None:
        self._shard, self.run_id, self.lane = shard, run_id, lane
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self.active_at = 0.0
        self._workflow: Workflow | None = None
        self._saved: Run | None = None
        self._revision = 0
        self._mail: list[Mail] = []
        self._unsaved: list[Mail] = []
        self._save_now = False
        self._failures = 0
        self._looked_at = 0
        self._counted = 0
        self._traced = shard.tally.traces(run_id)

    @property
    def idle(self) -> bool:
        """Nothing waits, and the snapshot is up to date."""
        return self.task is None and not self._mail and not self._unsaved

    def deliver(self, mail: Mail) -> None:
        self._mail.append(mail)
        self._begin()

    def save_soon(self) -> None:
        """Have the snapshot written in the actor's next turn."""
        self._save_now = True
        self._begin()

    def dismiss(self) -> None:
        """Stop right here: the run is another's."""
        if self.task is not None:
            self.task.cancel()
        mail, self._mail = self._mail, []
        self._shard.carried_out(mail)

    def _begin(self) -> None:
        if self.task is None:
            self.task = begin(self._work(), name="run")

    async def _work(self) -> None:
        """Turn after turn until nothing waits. An error here never touches another run."""
        try:
            while self._mail or self._save_now:
                await self._turn()
        except LeaseLost:
            return  # the run is another's; the shard is about to forget this actor
        except Exception as error:
            await self._start_over(error)
        finally:
            self.task = None
            self.active_at = time.monotonic()
        if self._mail or self._save_now:
            self._begin()

    async def _turn(self) -> None:
        self._shard.lease.check()
        mail = self._mail[:]  # it stays in the mailbox until it is carried out: an error puts nothing aside
        self._looked_at = len(mail)
        if self._workflow is None and not await self._open(mail):
            self._nothing_here()
            return
        commands = self._advance(mail)
        reached("shard.advanced")
        if commands:
            assert self.run is not None
            await perform(self._shard, self.run, commands, mail[0].received, mail)
        reached("shard.published")
        observe(self._shard.tally.handling, mail)
        del self._mail[: len(mail)]
        self._looked_at = 0  # what waits now came meanwhile: an error from here on is not its doing
        self._shard.carried_out(mail)
        self._unsaved += mail
        await self._settle()

    def _advance(self, mail: list[Mail]) -> list[Command]:
        commands: list[Command] = []
        workflow = self._workflow
        assert workflow is not None
        for one in mail:
            delivery = one.delivery
            try:
                event = decode(delivery.data)
                if event.run_id != self.run_id:
                    raise Malformed(f"the event is of run {event.run_id[:64]}")
            except Malformed as error:
                self._shard.bury(self.run_id, delivery, str(error))
                continue
            before, record = self.run, Record(delivery.seq, delivery.at, event)
            self.run, ordered = advance_safely(workflow, before, record)
            if ordered is FAILED:
                self._shard.bury(self.run_id, delivery, "the engine failed at this event, its log says where")
            self._count(workflow, before, self.run, record)
            commands += ordered
        return commands

    def _count(self, workflow: Workflow, before: Run | None, run: Run | None, record: Record) -> None:
        """For telemetry: each event once, also when it is folded again after an error."""
        if record.seq > self._counted:
            self._counted = record.seq
            self._shard.tally.folded(workflow, before, run, record, self._traced)

    async def _settle(self) -> None:
        """Write the snapshot if it is time, else have the shard remind us."""
        run = self.run
        if run is None or run is self._saved:
            self._handled(len(self._unsaved))
        elif run.ended or self._save_now:
            await self._save(run)
        else:
            self._shard.dirty.setdefault(self.run_id, time.monotonic())
        self._save_now = self._save_now and bool(self._unsaved)
        self._failures = 0
        if (run is None or run.ended) and not self._mail and not self._unsaved:
            self._shard.leave(self)
            reached("shard.left")

    async def _save(self, run: Run) -> None:
        """Write the snapshot over the one we know; then, and only then, the mail that it covers is handled."""
        self._shard.dirty.pop(self.run_id, None)
        body = to_snapshot(run)
        self._shard.lease.check()
        try:
            self._revision = ack_seq(await self._shard.store.runs.send(self.run_id, body, self._revision))
            reached("shard.snapshot_written")
        except Conflict:
            if not await self._settle_conflict(body):
                return
        except TooLarge as error:  # the log has everything; reading the run just takes longer
            log.warning("snapshot_too_large", run_id=self.run_id, error=str(error))
        self._save_now, self._saved = False, run
        self._handled(len(self._unsaved))

    async def _settle_conflict(self, body: bytes) -> bool:
        """Someone wrote before us: ourselves, when an answer got lost, or another owner; then the log decides."""
        entry = await self._shard.store.runs.get(self.run_id)
        if entry is not None and entry.value == body:
            self._revision = entry.revision
            return True
        log.warning("snapshot_conflict", run_id=self.run_id, revision=self._revision)
        await self._resume(await self._load(), time.monotonic(), True)
        self._save_now = True
        return False

    def _handled(self, count: int) -> None:
        handled = self._unsaved[:count]
        for one in handled:
            one.handled = True
        if handled:
            observe(self._shard.tally.commit, handled)
        del self._unsaved[:count]

    async def _open(self, mail: list[Mail]) -> bool:
        """Get the run's definition and state; False when nothing was ever started under this id."""
        if mail and await self._open_new(mail[0]):
            return True
        loaded = await self._load()
        if loaded.workflow is None:
            return False
        reached("shard.loaded")
        repeat = not mail or any(self._shard.is_repeat(one.delivery) for one in mail)
        await self._resume(loaded, mail[0].received if mail else time.monotonic(), repeat)
        reached("shard.resumed")
        return True

    async def _load(self) -> Loaded:
        """Where thousands of runs want to be read at once, some are, and the others after them: all together they would
        all be late."""
        async with self._shard.loads:
            return await load(self._shard.store, self.run_id, on_fold=self._count)

    async def _open_new(self, first: Mail) -> bool:
        """The usual case: the run's first event, just made, with nothing in the store that would have to be read."""
        if not self._shard.is_new(self.run_id, first.delivery):
            return False
        try:
            event = decode(first.delivery.data)
        except Malformed:
            return False
        if not isinstance(event, WorkflowStarted | WorkflowScheduled):
            return False
        if isinstance(event, WorkflowStarted) and waited_for_its_time(event):
            return False  # it was cancelled, perhaps: its actor is gone then
        started, definitions = event.payload, self._shard.store.definitions
        try:
            self._workflow = definitions.compiled(started.digest) or await definitions.load(
                started.workflow, started.digest
            )
        except NotFound:
            return False
        return True

    async def _resume(self, loaded: Loaded, since: float, repeat: bool) -> None:
        """Take over the state of the log and carry out what may not have been.

        `repeat` says that a former owner saw this mail: what it held in memory are the timers younger than its last
        acknowledgement. Otherwise every timer is in this shard's memory or the broker's already.
        """
        if self._unsaved and 0 < loaded.last_seq < self._unsaved[-1].delivery.seq:  # a leader that is behind its copies
            raise Unavailable("the log was read before it had all that this run was advanced by")
        self.run, self._workflow, self._revision = loaded.run, loaded.workflow, loaded.revision
        self._saved = loaded.run if not loaded.beyond else None
        if self.run is None:
            return
        due = [*loaded.due, *live_timers(self.run)] if repeat else list(loaded.due)
        await perform(self._shard, self.run, due, since)

    def _nothing_here(self) -> None:
        """Events of a run that nobody started, or whose definition is gone: kept as dead letters, and done with."""
        self._give_up("the run was never started, or its definition is not in the store")

    def _give_up(self, why: str) -> None:
        """Bury the mail that was looked at, so that it does not hold up the whole partition. What came meanwhile has
        its own turn."""
        for one in self._mail[: self._looked_at]:
            self._shard.bury(self.run_id, one.delivery, why)
        self._put_aside(self._looked_at)

    def _wait_for_upgrade(self, error: NeedsUpgrade) -> None:
        """Leave the run to whoever can read it. What is not done of its log yet will be then: the timer wakes its owner
        of that time."""
        log.error("run_waits_for_upgrade", run_id=self.run_id, reason=str(error))
        since = min((one.received for one in self._unsaved + self._mail), default=time.monotonic())
        due = self._shard.clock.now() + UPGRADE_LOOK_S
        self._shard.timers.arm(
            self.run_id, SetTimer(UPGRADE_TIMER, due, attempt=int(due * 1000)), since
        )  # no two are the same
        self._put_aside(len(self._mail))

    def _put_aside(self, count: int) -> None:
        """This much mail is done with, without any of it having been applied; without any left, so is the actor."""
        mail, self._mail, self._save_now, self._failures = self._mail[:count], self._mail[count:], False, 0
        for one in mail:
            one.handled = True
        self._shard.carried_out(mail)
        self._handled(len(self._unsaved))
        if not self._mail:
            self._shard.leave(self)

    async def _start_over(self, error: Exception) -> None:
        """Forget all state and come back from the log; mail that fails again and again is buried."""
        self.run, self._workflow, self._saved, self._revision = None, None, None, 0
        self._save_now = True
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
