"""The direct transport: tasks, reports and everything else through the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import assert_never

from penstock.broker import message_ids, record_keys
from penstock.broker.live import chunks, lines
from penstock.broker.live.progress import StepProgress
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload, WorkerRegistration
from penstock.broker.worker_protocol import receiving, reports, signals
from penstock.broker.worker_protocol.cancels import WantedTasks, cancellation, cancellations
from penstock.broker.worker_protocol.receiving import Unreadable, given_up, refuse
from penstock.broker.worker_protocol.registrations import register
from penstock.config.limits import ACK_WAIT_S, DELIVERIES_MAX, WORKER_HEARTBEAT_S
from penstock.config.process.background import background
from penstock.config.process.crash_points import reached
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import StepCompleted, StepContinue, StepFailed
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome, TaskCompleted, TaskContinued, TaskPaused
from penstock.worker.retrying import retry_until_available
from penstock.worker.transport import Executions, IntakeLimits
from penstock.worker.transports.direct_intake import DirectIntake, open_direct_intake
from penstock.worker.transports.held_starts import HeldStarts

CHECK_S = ACK_WAIT_S / 3  # how often a worker asks whether what it carries out is wanted


class DirectTask:
    """One delivery. Owned by its execution."""

    __slots__ = (
        "_delivery",
        "_function",
        "_is_over",
        "_reported",
        "_started_at",
        "_starts",
        "_store",
        "_task",
        "_worker_id",
    )
    _task: TaskPayload
    _started_at: str

    def __init__(
        self, store: Store, worker_id: str, function: TaskFunction, delivery: Delivery, starts: HeldStarts
    ) -> None:
        self._store, self._worker_id, self._function, self._delivery = store, worker_id, function, delivery
        self._starts = starts
        self._reported: Awaitable[bytes] | None = None  # the start
        self._is_over = False

    @property
    def deliveries(self) -> int:
        return self._delivery.deliveries

    async def begin(self) -> TaskPayload | None:
        delivery = self._delivery
        try:
            task = receiving.task_in(delivery)
        except Unreadable as error:
            await refuse(self._store, self._function.name, delivery, self._worker_id, str(error))
            return None
        self._task = task
        if delivery.deliveries > DELIVERIES_MAX and await retry_until_available(
            lambda: given_up(self._store, task, delivery, self._worker_id)
        ):
            return None
        self._started_at = reports.now()
        self._starts.hold(self)
        reached("worker.begun")
        return task

    def report_start(self) -> None:
        if not self._is_over and self._reported is None:
            started = reports.started(self._task, self._worker_id, self._started_at, delivery=self._delivery.deliveries)
            self._reported = self._store.history.send(started)
            reached("worker.start_reported")

    async def answer(self, outcome: Outcome) -> None:
        if isinstance(outcome, TaskPaused):
            await self._pause(outcome)
            return
        self._is_over = True
        await self._store.history.send(self._event(outcome))
        await self._start_stored()
        reached("worker.answered")
        # Ack last: a crash before this line has the task delivered again, and the engine ignores a second answer.
        self._delivery.ack_soon()
        reached("worker.acknowledged")

    async def discard(self, reason: str | None) -> None:
        self._is_over = True
        await self._start_stored()
        with suppress(Unavailable):  # then it is delivered again, and its worker is notified at once
            await self._delivery.ack()

    async def give_back(self, delay_s: float = 0.0) -> None:
        """A delay means that it could not be reported, and the delivery counts; without one the worker only stops."""
        self._is_over = True
        task = getattr(self, "_task", None)  # None: it could not be read
        with suppress(Unavailable):  # then its ack wait brings it back
            if task is None or delay_s:
                await self._delivery.give_back(delay_s)
            else:
                await self._store.pauses.give_back(task, self._delivery)

    async def checkpoint(self, body: bytes) -> None:
        await retry_until_available(lambda: self._store.checkpoints.put(self._key, body))

    async def load_checkpoint(self) -> bytes | None:
        entry = await retry_until_available(lambda: self._store.checkpoints.get(self._key))
        return None if entry is None else entry.value

    async def wait_signal(self, name: str) -> bytes:
        return await retry_until_available(lambda: signals.wait(self._store, self._task.run_id, name))

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None:
        revision = await retry_until_available(lambda: signals.put(self._store, run_id, name, payload))
        await signals.report(self._store, run_id, name, len(payload), revision)

    async def say_lines(self, said: Sequence[bytes], number: int) -> None:
        task = self._task
        body = lines.batch(said, task.attempt, self._worker_id, delivery=self.deliveries)
        await self._store.logs.send(task.run_id, task.step_id, body, self._said_id("log", number))

    async def say_chunks(self, said: Sequence[bytes], dropped: int, number: int) -> None:
        task = self._task
        body = chunks.batch(said, task.attempt, self._worker_id, dropped, delivery=self.deliveries)
        await self._store.chunks.send(task.run_id, task.step_id, body, self._said_id("stream", number))

    async def say_progress(self, said: StepProgress) -> None:
        await self._store.progress.say(self._task.run_id, self._task.step_id, said)

    def _said_id(self, kind: str, number: int) -> str:
        return message_ids.of_said(self._task.task_id, kind, f"{self._worker_id}.{self._delivery.reply}.{number}")

    @property
    def _key(self) -> str:
        return record_keys.step_key(self._task.run_id, self._task.step_id)

    async def _pause(self, pause: TaskPaused) -> None:
        """Store the checkpoint, the pause and its event, then give the delivery back with its delay."""
        self.report_start()  # what is paused has begun
        await self._start_stored()
        if pause.checkpoint is not None:
            await self.checkpoint(pause.checkpoint)
            reached("worker.checkpointed")
        await retry_until_available(lambda: self._store.pauses.add(self._task, pause.name))
        reached("worker.paused")
        paused = reports.paused(
            self._task, self._worker_id, pause.delay_s, pause.name, delivery=self._delivery.deliveries
        )
        await self._store.history.send(paused)
        reached("worker.pause_reported")
        await self._delivery.give_back(pause.delay_s)
        reached("worker.given_back")

    async def _start_stored(self) -> None:
        if self._reported is not None:
            await self._reported

    def _event(self, outcome: TaskCompleted | TaskContinued | Failure) -> StepCompleted | StepContinue | StepFailed:
        """The answer; it says when the execution began if nothing has said it before."""
        task, worker, delivery = self._task, self._worker_id, self._delivery.deliveries
        began = self._started_at if self._reported is None else None
        match outcome:
            case TaskCompleted(output):
                return reports.completed(task, worker, output, started_at=began, delivery=delivery)
            case TaskContinued(value):
                return reports.continued(task, worker, value, started_at=began, delivery=delivery)
            case Failure():
                return reports.failed(task, worker, outcome, started_at=began, delivery=delivery)
            case _:
                assert_never(outcome)


class DirectTransport:
    """Owned by a running worker (`open_direct`)."""

    name = "nats"

    def __init__(self, store: Store, worker_id: str) -> None:
        self._store, self._worker_id = store, worker_id

    @asynccontextmanager
    async def registered(self, entry: WorkerRegistration) -> AsyncIterator[None]:
        """Registered at the start of the block, and renewed every 30 s."""
        bucket = self._store.workers
        await bucket.get(entry.worker_id)
        await retry_until_available(lambda: register(bucket, entry))
        try:
            async with background(self._renew(entry), name="worker_registration"):
                yield
        finally:
            with suppress(Unavailable):  # then its time to live removes it
                await bucket.delete(entry.worker_id)

    @asynccontextmanager
    async def receiving(
        self, functions: Sequence[TaskFunction], executions: Executions, bounds: IntakeLimits
    ) -> AsyncIterator[DirectIntake]:
        starts = HeldStarts()

        def handled(function: TaskFunction, delivery: Delivery) -> Awaitable[None]:
            return executions.handle(function, DirectTask(self._store, self._worker_id, function, delivery, starts))

        async with (
            cancellations(self._store.broker, self._worker_id, executions.cancel),
            background(self._check(executions), name="worker_cancellations"),
            open_direct_intake(self._store, functions, handled, bounds, self._worker_id) as intake,
        ):
            yield intake

    async def _check(self, executions: Executions) -> None:
        """Find what was cancelled without this worker having been notified: the message may be lost."""
        wanted = WantedTasks(self._store)
        while True:
            await asyncio.sleep(CHECK_S)
            for task in executions.executing():
                if why := await wanted.given_up(task):
                    executions.cancel(cancellation(task, why))

    async def _renew(self, entry: WorkerRegistration) -> None:
        while True:
            await asyncio.sleep(WORKER_HEARTBEAT_S)
            await retry_until_available(lambda: register(self._store.workers, entry))


@asynccontextmanager
async def open_direct(settings: BrokerSettings, worker_id: str) -> AsyncIterator[DirectTransport]:
    """A connection to the broker for the time of the block. Raises Unavailable."""
    async with open_store(settings, f"worker {worker_id}") as store:
        try:
            yield DirectTransport(store, worker_id)
        finally:
            if store.broker.connected:  # what was given back last has reached it, if it is there
                with suppress(Unavailable):
                    await store.broker.flush()
