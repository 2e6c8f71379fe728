"""Carries out a worker's report on a polled task: in any process, and a final report exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, assert_never

import msgspec
import orjson

from penstock.broker import record_keys
from penstock.broker.nats.errors import within
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.records.leases import Lease, StoredLease, ignore
from penstock.broker.store import Store
from penstock.broker.worker_protocol import reports
from penstock.broker.worker_protocol.cancels import WantedTasks
from penstock.config.limits import ACK_WAIT_S, BRIDGE_CLAIM_S
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Invalid, NotFound, PenstockError, TooLarge, Unavailable
from penstock.engine.run.events import StepCompleted, StepContinue, StepFailed
from penstock.engine.times import rfc3339
from penstock.http.bridge.leases import HeldLeases, claimed, not_polled, seen, unclaimed
from penstock.http.bridge.live.live_reports import LiveReports
from penstock.http.bridge.live.live_requests import LogAction, ProgressAction, StreamAction
from penstock.http.bridge.requests import (
    Action,
    CheckpointAction,
    CompleteAction,
    ContinueAction,
    FailAction,
    HeartbeatAction,
    PauseAction,
    action_in,
)
from penstock.http.bridge.starts import Starts

ANSWER_S_MAX = 5.0
NO_ANSWER = "the broker gave no answer in time; whether the answer was stored is unknown"
SEEN_LATELY_S = ACK_WAIT_S / 3  # how old a sign of life may be before another one is written down
RAISED: Mapping[str, type[PenstockError]] = {
    "Invalid": Invalid,
    "NotFound": NotFound,
    "Conflict": Conflict,
    "TooLarge": TooLarge,
}


class SentAnswer(NamedTuple):
    """An answer that is on its way to the history."""

    task_id: str
    lease: Lease
    event: asyncio.Future[bytes]


class Resolver:
    """Owned by the bridge. `resolve` is for answers from HTTP, `carry_out_forwarded` for those of other processes.

    A lease is in one of these states:

        new       assigned a moment ago and not stored (starts.py): only its holder knows it
        held      assigned and not resolved; its holder keeps the task alive
        claimed   someone carries out a final answer since `claimed_at`
        removed   the task was answered or paused

        new → removed       a final answer: its event says when the execution began
        new → held          any other request, one that another process got, or the time is over
        held → removed      a final answer, in the holder's process: event and removal are sent together
        held → claimed      a pause, or a final answer where the holder is gone or the broker is not connected
        claimed → removed   all that the answer asks for is stored
        claimed → held      storing it failed: the worker answers again
        claimed → claimed   the claim is older than BRIDGE_CLAIM_S: another answer takes its place

    Checkpoints and heartbeats leave a lease held, and so does what a worker says. A process that does not hold the
    lease forwards to the holder, so that one process decides between several answers. Without the holder, the lease's
    revision decides.
    """

    def __init__(self, store: Store, held: HeldLeases, starts: Starts, answered_at_once: Callable[[str], None]) -> None:
        """`answered_at_once` is called with `reply` of the lease of a new task that is answered."""
        self._store, self._leases, self._held, self._starts = store, store.leases, held, starts
        self._answered_at_once = answered_at_once
        self._live = LiveReports(store)
        self._wanted = WantedTasks(store)

    def is_new(self, task_id: str) -> bool:
        """Whether the task was assigned here a moment ago."""
        return self._starts.is_new(task_id)

    async def resolve(self, task_id: str, action: Action, body: bytes) -> None:
        """Return when all that the action requests is stored; `body` is the request with the action, of no use for a
        task that is new here.

        Raises NotFound when no worker holds the task, Unavailable when the outcome is unknown: then the same report may
        be sent again.
        """
        if not self.is_new(task_id) and await self._is_elsewhere(task_id, action, body):
            return
        await self._carry_out(task_id, action)

    async def carry_out_forwarded(self, task_id: str, body: bytes) -> bytes:
        """As `resolve`, for another process; the result has the error instead of raising it."""
        try:
            await self._carry_out(task_id, action_in(body))
        except PenstockError as error:
            return orjson.dumps([type(error).__name__, str(error)])
        return b""

    async def _is_elsewhere(self, task_id: str, action: Action, body: bytes) -> bool:
        """Whether another process, which holds the lease, has carried it out. False: this process must do it."""
        if await self._held.get(task_id) is not None:
            return False
        kept = await self._held.found(task_id)
        if kept.lease.holder == self._held.holder:
            return False
        if await self._forwarded(kept.lease, body):
            return True
        await self._take_over(kept, action)
        return False

    async def _forwarded(self, lease: Lease, body: bytes) -> bool:
        """Whether the lease's holder has carried it out; False when it is gone. Raises what it raised."""
        try:
            refusal = await self._leases.forward(lease, body)
        except NotFound:
            return False
        if refusal:
            kind, text = orjson.loads(refusal)
            raise RAISED.get(kind, Unavailable)(text)
        return True

    async def _take_over(self, kept: StoredLease, action: Action) -> None:
        """Replace a holder that is gone: report the start of the step unless it is reported, and keep the task alive
        from now on if it stays with its worker.

        After a crash between the two, the next process finds the start in the history and does not report it again.
        """
        await self._starts.report_for_former_holder(kept.lease)
        reached("bridge.begun_in_place")
        if not isinstance(action, CompleteAction | ContinueAction | FailAction | PauseAction):
            with suppress(Conflict):  # someone else was faster
                self._held.keep(
                    await self._leases.replace(kept, msgspec.structs.replace(kept.lease, holder=self._held.holder))
                )

    async def _carry_out(self, task_id: str, action: Action) -> None:
        if sent := self.send(task_id, action):
            await self.stored(sent)
            return
        self._starts.report(task_id)
        match action:
            case CompleteAction() | ContinueAction() | FailAction():
                await self._live.end(task_id)
                if not await self._answer_held(task_id, action):
                    await self._answer(task_id, action)
            case PauseAction():
                await self._live.end(task_id)
                await self._pause(task_id, action)
            case CheckpointAction(data):
                kept = await self._seen(task_id)
                await self._store.checkpoints.put(_key(kept.lease), data)
                await self._leases.delivery(kept.lease).in_progress()
            case HeartbeatAction():
                kept = await self._seen(task_id)
                await self._leases.delivery(kept.lease).in_progress()
            case LogAction() | StreamAction() | ProgressAction():
                kept = await self._seen_lately(task_id)
                await self._wanted.check(kept.lease)
                await self._live.store(kept.lease, action)
            case _:
                assert_never(action)

    async def _seen_lately(self, task_id: str) -> StoredLease:
        """The lease, as it is while the last sign of life is young: what a worker says is one, and comes often."""
        kept = await self._held.get(task_id)
        if kept is not None and not kept.lease.claimed_at and time.time() - kept.lease.seen_at < SEEN_LATELY_S:
            return kept
        kept = await self._change(task_id, seen)
        await self._leases.delivery(kept.lease).in_progress()
        return kept

    async def _seen(self, task_id: str) -> StoredLease:
        """Note a sign of life. Raises NotFound, and Conflict when the execution was given up."""
        kept = await self._change(task_id, seen)
        await self._wanted.check(kept.lease)
        return kept

    def send(self, task_id: str, action: Action) -> SentAnswer | None:
        """Send the answer to a task that was assigned here a moment ago and has said nothing since; `stored` must
        follow. None when it is no such task, or no answer. Raises as `resolve`."""
        lease = self._starts.new(task_id)
        if lease is None or not isinstance(action, CompleteAction | ContinueAction | FailAction):
            return None
        _check_execution(lease, action)
        if not self._store.broker.connected:
            self._starts.report(task_id)
            return None
        self._starts.discard(task_id)  # another answer meanwhile finds no lease
        try:
            event = _event(lease, action, rfc3339(lease.seen_at))
            sent = SentAnswer(task_id, lease, self._store.history.send(event, wait_if_full=False))
        except BaseException:  # the worker will answer again
            self._starts.report_now(lease)
            raise
        self._answered_at_once(lease.reply)
        return sent

    async def stored(self, sent: SentAnswer) -> None:
        """Return when the answer is stored. Raises as `resolve`.

        After a crash behind the event, the task is delivered again, and the engine ignores a second answer.
        """
        try:
            await within(sent.event, ANSWER_S_MAX, NO_ANSWER)
        except BaseException:
            self.forget(sent)
            raise
        reached("bridge.answered")
        self._acknowledge(sent.lease)
        reached("bridge.acknowledged")

    def forget(self, sent: SentAnswer) -> None:
        """Nobody waits for the answer any more: the worker will answer again."""
        self._starts.report_now(sent.lease)

    async def _answer_held(self, task_id: str, action: CompleteAction | ContinueAction | FailAction) -> bool:
        """Answer a task that this process holds: send the event, and right behind it the removal of the lease.

        False when it is not held here, or when another process has changed the lease meanwhile: then the event does no
        harm, for the engine ignores a second answer.
        """
        kept = await self._held.get(task_id)
        if kept is None or kept.lease.claimed_at or not self._store.broker.connected:
            return False
        _check_execution(kept.lease, action)
        let_go = self._held.let_go(kept)  # another answer meanwhile finds no lease
        assert let_go is not None
        event, removal = (
            self._store.history.send(_event(kept.lease, action), wait_if_full=False),
            self._leases.remove(kept),
        )
        try:
            await _ended(removal, event)
            if _is_conflict(removal):
                event.add_done_callback(ignore)
                if self._held.may_be_forgotten(let_go):
                    raise Unavailable("the leases of tasks are being restored")
                return False
            _check_stored(removal, event)
        except BaseException:
            self._keep_unclaimed(kept, let_go, removal, event)
            raise
        reached("bridge.held_answered")
        self._acknowledge(kept.lease)
        reached("bridge.held_acknowledged")
        return True

    async def _answer(self, task_id: str, action: CompleteAction | ContinueAction | FailAction) -> None:
        """Claim the lease, store the event, remove the lease.

        After a crash behind the claim, another answer counts once the claim is BRIDGE_CLAIM_S old. After one behind the
        event, the task is delivered again, and the engine ignores a second answer.
        """
        kept = await self._change(task_id, lambda lease: claimed(_check_execution(lease, action)))
        reached("bridge.claimed")
        let_go = self._held.let_go(kept)
        try:
            await self._store.history.append(_event(kept.lease, action))
        except BaseException:
            self._unclaim(kept, let_go)
            raise
        reached("bridge.claimed_answered")
        await self._done(kept)

    async def _done(self, kept: StoredLease) -> None:
        self._acknowledge(kept.lease)
        await self._leases.delete(kept)

    def _acknowledge(self, lease: Lease) -> None:
        """Soon: the answer is stored, and what is delivered again will change nothing."""
        self._leases.delivery(lease).ack_soon()

    async def _pause(self, task_id: str, pause: PauseAction) -> None:
        """Claim the lease, store the pause, give the delivery back with its delay, remove the lease."""
        kept = await self._change(task_id, claimed)
        let_go = self._held.let_go(kept)
        try:
            await self._store_pause(kept.lease, pause)
        except BaseException:
            self._unclaim(kept, let_go)
            raise
        reached("bridge.given_back")
        await self._leases.delete(kept)

    async def _store_pause(self, lease: Lease, pause: PauseAction) -> None:
        delivery = self._leases.delivery(lease)
        if pause.checkpoint is not None:
            await self._store.checkpoints.put(_key(lease), pause.checkpoint)
            reached("bridge.checkpointed")
        if pause.delay_s or pause.checkpoint is not None or pause.name is not None:
            await self._store.pauses.add(lease, pause.name)
            reached("bridge.paused")
            paused = reports.paused(
                lease, lease.worker_id or None, pause.delay_s, pause.name, delivery=lease.deliveries
            )
            await self._store.history.append(paused)
            reached("bridge.pause_reported")
            await delivery.give_back(pause.delay_s)
        else:  # the worker has not begun it
            await self._store.pauses.give_back(lease, delivery)

    async def _change(self, task_id: str, change: Callable[[Lease], Lease]) -> StoredLease:
        """Change the lease; of several changes at once, one succeeds and the others try again on the new lease. Raises
        NotFound."""
        kept = await self._held.get(task_id) or await self._held.found(task_id)
        while True:
            wait_s = kept.lease.claimed_at + BRIDGE_CLAIM_S - time.time() if kept.lease.claimed_at else 0.0
            if wait_s > 0:
                await self._held.claim_ended(kept, wait_s)
            else:
                with suppress(Conflict):  # someone else was faster: read what they wrote
                    after = await self._leases.replace(kept, change(kept.lease))
                    self._held.changed(kept, after)
                    return after
            kept = await self._held.found(task_id)

    def _keep_unclaimed(
        self, kept: StoredLease, let_go: int, removal: asyncio.Future[bytes], event: asyncio.Future[bytes]
    ) -> None:
        """After a failed answer: the lease is held again, and the worker will answer again."""
        event.cancel()
        if removal.done() and not removal.cancelled() and removal.exception() is None:
            self._unclaim(StoredLease(kept.lease, ack_seq(removal.result())), let_go)
        else:
            removal.cancel()
            self._held.hold_again(kept, let_go)

    def _unclaim(self, kept: StoredLease, let_go: int | None) -> None:
        """Remove the claim without waiting for the broker. If that fails, the claim ends after BRIDGE_CLAIM_S."""
        lease = unclaimed(kept.lease)
        self._leases.restore(kept, lease)
        if let_go is not None:
            self._held.hold_again(StoredLease(lease, kept.revision), let_go)


def _check_execution(lease: Lease, action: CompleteAction | ContinueAction | FailAction) -> Lease:
    """The lease, if the answer is about its execution. Raises NotFound."""
    if isinstance(action, FailAction) and not action.is_for(lease):
        raise not_polled(lease.task_id)
    return lease


def _is_conflict(removal: asyncio.Future[bytes]) -> bool:
    return not removal.cancelled() and isinstance(removal.exception(), Conflict)


def _check_stored(removal: asyncio.Future[bytes], event: asyncio.Future[bytes]) -> None:
    """Raises Unavailable when one of both has no answer, and the error of the event's answer."""
    if removal.cancelled() or event.cancelled():
        raise Unavailable(NO_ANSWER)
    event.result()


async def _ended(*sent: asyncio.Future[bytes]) -> None:
    """Return when each has its answer, or is cancelled because none came in time."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            for one in sent:
                with suppress(PenstockError):
                    await one
    except TimeoutError:
        for one in sent:
            one.cancel()


def _event(
    lease: Lease, action: CompleteAction | ContinueAction | FailAction, started_at: str | None = None
) -> StepCompleted | StepContinue | StepFailed:
    """The event of the answer; with `started_at`, if no step.started was sent, as of a first delivery."""
    worker_id, delivery = lease.worker_id or None, lease.deliveries if started_at is None else 1
    match action:
        case CompleteAction(output):
            return reports.completed(lease, worker_id, output, started_at=started_at, delivery=delivery)
        case ContinueAction(value):
            return reports.continued(lease, worker_id, value, started_at=started_at, delivery=delivery)
        case FailAction(failure):
            return reports.failed(lease, worker_id, failure, started_at=started_at, delivery=delivery)
        case _:
            assert_never(action)


def _key(lease: Lease) -> str:
    return record_keys.step_key(lease.run_id, lease.step_id)
