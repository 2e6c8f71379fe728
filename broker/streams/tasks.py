"""The task queues: dispatch a step to the workers of its task type, take it back, consume a type's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw

from penstock.broker import message_ids, names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher
from penstock.broker.nats.pull import EXPIRES_S, Delivery, Pull, open_pull
from penstock.broker.worker_messages import decode
from penstock.config.limits import ACK_WAIT_S
from penstock.engine.errors import Conflict, PenstockError
from penstock.engine.run.commands import DispatchTask, WithdrawSticky

_ENCODER = msgspec.json.Encoder()


def payload(run_id: str, workflow: str, command: DispatchTask) -> bytes:
    """The task message's body for one execution of a step. Its input must have been put together."""
    assert isinstance(command.input, Raw)
    document = {
        "task_id": f"{run_id}.{command.step_id}",
        "run_id": run_id,
        "step_id": command.step_id,
        "iteration": command.iteration,
        "attempt": command.attempt,
        "input": command.input,
        "workflow_name": workflow,
    }
    if command.metadata:
        document["metadata"] = command.metadata
    if command.step_type != "normal":
        document["step_type"] = command.step_type
    return _ENCODER.encode(document)


class Tasks:
    """A small face over the TASK_QUEUES stream."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader
        self._durables: dict[tuple[str, str | None], str] = {}

    def send(self, run_id: str, workflow: str, command: DispatchTask) -> asyncio.Future[bytes]:
        """Queue a task, for everyone or for its worker; the future ends when it is stored. A repeat within 2 min is
        stored once."""
        message_id = message_ids.of_task(run_id, command.step_id, command.iteration, command.attempt)
        if command.worker is None:
            subject = names.task_subject(command.task, run_id, command.group)
        else:
            subject = names.sticky_subject(command.task, command.worker, run_id)
        return self._publisher.send(subject, payload(run_id, workflow, command), {MSG_ID: message_id})

    async def withdraw(
        self, run_id: str, task: str, group: str | None, worker: str | None, check: Callable[[], None]
    ) -> None:
        """Remove the run's tasks of this type from the queue (or its worker's), also those that are held: none comes
        again.

        `check` raises when the run is another's by now. What is queued after it was asked stays, however late the
        removal arrives.
        """
        stream = names.TASKS if worker is None else names.STICKY
        for subject in (
            names.task_subjects(task, run_id, group) if worker is None else names.sticky_subjects(task, worker, run_id)
        ):
            await self._remove(stream, subject, lambda _: True, check)

    async def withdraw_sticky(self, run_id: str, command: WithdrawSticky, check: Callable[[], None]) -> None:
        """Remove this very execution from what waits for its worker; one that is gone is fine. `check` as above."""

        def wanted(stored: Stored) -> bool:
            task = decode(stored.data)
            return (task.step_id, task.iteration, task.attempt) == (command.step_id, command.iteration, command.attempt)

        for subject in names.sticky_subjects(command.task, command.worker, run_id):
            await self._remove(names.STICKY, subject, wanted, check)

    async def _remove(
        self, stream: str, subject: str, wanted: Callable[[Stored], bool], check: Callable[[], None]
    ) -> None:
        """Each by its sequence. Never by a purge of the subject: while others are queued, handed out and answered, the
        broker then forgets what else the same consumer has handed out, and such tasks of other runs never come again
        (nats-server 2.15.1)."""
        for stored in await self._reader.subject(stream, subject):
            if wanted(stored):
                check()
                await self._broker.remove(f"STREAM.MSG.DELETE.{stream}", {"seq": stored.seq, "no_erase": True})

    @asynccontextmanager
    async def consume(
        self,
        task: str,
        take: Callable[[Delivery], None],
        *,
        batch: int,
        room: Callable[[], int],
        group: str | None = None,
        expires_s: int = EXPIRES_S,
    ) -> AsyncIterator[Pull]:
        """Deliveries of one task type, shared with every other worker of it, for the time of the block."""
        consumer = await self._durable(task, group)
        async with open_pull(
            self._broker, names.TASKS, consumer, take, batch=batch, room=room, expires_s=expires_s
        ) as pull:
            yield pull

    async def ack_wait_s(self, task: str, group: str | None = None) -> float:
        """How long the broker waits for the answer to a task of this type before it delivers it again."""
        name = self._durables.get((task, group)) or names.task_consumer(task, group)
        return int((await self._broker.api(f"CONSUMER.INFO.{names.TASKS}.{name}"))["config"]["ack_wait"]) / 1e9

    async def _durable(self, task: str, group: str | None) -> str:
        """The name of the type's consumer, made if it is not there; one with a wider filter, or of a former name, is
        used as it is."""
        name, wanted = names.task_consumer(task, group), names.task_filter(task, group)
        try:
            await self._make(name, wanted)
        except PenstockError as error:
            name = await self._other(task, group, error)
        self._durables[task, group] = name
        return name

    async def _make(self, name: str, wanted: str) -> None:
        consumer = ConsumerConfig(
            stream=names.TASKS, name=name, filter_subject=wanted, ack_wait_s=ACK_WAIT_S, pending_max=-1
        )
        await create_consumer(self._broker, consumer, filter_in_subject=True)

    async def _other(self, task: str, group: str | None, refused: PenstockError) -> str:
        """The name of the consumer that takes what the refused one was to take: its own, as somebody made it, or a
        former version's. Where that version gave its name to another type, a spare one is made. Raises Conflict."""
        name, wanted = names.task_consumer(task, group), names.task_filter(task, group)
        serves = await self._serves(name)
        if serves is not None and covers(serves, wanted):
            return name
        former = names.former_task_consumer(task)
        if group is None and former != name and covers(await self._serves(former) or "", wanted):
            return former
        if serves is None:
            raise refused
        spare = names.spare_task_consumer(task, group)
        try:
            await self._make(spare, wanted)
        except PenstockError as error:
            raise Conflict(f'the consumer "{name}" serves {serves}, not {wanted}') from error
        return spare

    async def _serves(self, consumer: str) -> str | None:
        """The filter of this consumer; None: it is not there, or the broker does not say."""
        try:
            found = await self._broker.api(f"CONSUMER.INFO.{names.TASKS}.{consumer}")
        except PenstockError:
            return None
        return str(found["config"].get("filter_subject", ">"))


def covers(wide: str, narrow: str) -> bool:
    """Whether the filter `wide` takes everything that `narrow` takes."""
    theirs, ours = wide.split("."), narrow.split(".")
    for at, part in enumerate(theirs):
        if part == ">":
            return len(ours) > at
        if at >= len(ours) or ours[at] == ">" or (part != "*" and part != ours[at]):
            return False
    return len(theirs) == len(ours)
