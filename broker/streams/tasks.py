"""The task queues: dispatch a step to the workers of its task type, withdraw it, consume the tasks of a type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw, Struct

from penstock.broker import message_ids, names
from penstock.broker.nats.batch import Groups, Message
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher
from penstock.broker.nats.pull import EXPIRES_S, Delivery, Pull, open_pull
from penstock.broker.worker_messages import TaskPayload, decode
from penstock.config.limits import ACK_WAIT_S, KIB
from penstock.engine.definition.subjects import covers
from penstock.engine.errors import Conflict, PenstockError
from penstock.engine.run.commands import DispatchTask, WithdrawQueued, WithdrawSticky, is_within

GROUPED_BYTES_MAX = 8 * KIB  # of a task that is stored together with others
CONSUMERS_MAX = 10_000  # of one stream; the broker lists 256 at a time

_ENCODER = msgspec.json.Encoder()


class QueueFloor(Struct, frozen=True):
    """Every task under the filter up to this sequence counts as acknowledged for the queue's consumer."""

    filter: str
    seq: int


def payload(run_id: str, workflow: str, command: DispatchTask, trace_parent: str | None = None) -> bytes:
    """The body of the task message for one execution of a step. Its input must be one JSON text."""
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
    if command.item is not None:
        document["item"] = command.item
    if command.previous_error is not None:
        document["previous_error"] = command.previous_error
    if command.step_type != "normal":
        document["step_type"] = command.step_type
    if trace_parent is not None:
        document["trace_parent"] = trace_parent
    return _ENCODER.encode(document)


class Tasks:
    """The TASK_QUEUES stream."""

    def __init__(
        self, broker: Broker, publisher: Publisher, reader: DirectReader, groups: Groups | None = None
    ) -> None:
        """With `groups`, what is queued at about the same time is stored together."""
        self._broker, self._publisher, self._reader, self._groups = broker, publisher, reader, groups
        self._durables: dict[tuple[str, str | None], str] = {}

    def send(
        self, run_id: str, workflow: str, command: DispatchTask, trace_parent: str | None = None
    ) -> asyncio.Future[bytes]:
        """Queue a task, for all workers of its type or for its one worker; the future ends when it is stored. A repeat
        within 2 min is stored once. `trace_parent` names the span of the execution."""
        message_id = message_ids.of_task(run_id, command.step_id, command.iteration, command.attempt, command.again)
        if command.worker is None:
            subject = names.task_subject(command.task, run_id, command.group)
        else:
            subject = names.sticky_subject(command.task, command.worker, run_id)
        body = payload(run_id, workflow, command, trace_parent)
        if self._groups is not None and command.worker is None and len(body) <= GROUPED_BYTES_MAX:
            return self._groups.send(Message(subject, body, message_id))
        return self._publisher.send(subject, body, {MSG_ID: message_id})

    async def withdraw(
        self,
        run_id: str,
        task: str,
        group: str | None,
        worker: str | None,
        check: Callable[[], None],
        of_step: str | None = None,
    ) -> None:
        """Remove the run's tasks of this type from the queue (or its worker's), also those that are held: none comes
        again. `of_step`: only those of this step, or of its elements.

        `check` raises when the run has another owner by now. A task that is queued after the list was read stays,
        however late the removal arrives.
        """

        def wanted(stored: Stored) -> bool:
            return of_step is None or is_within(decode(stored.data).step_id, of_step)

        for stream, subject in _places(run_id, task, group, worker):
            await self._remove(stream, subject, wanted, check)

    async def withdraw_queued(
        self, run_id: str, command: WithdrawQueued, waits: Callable[[TaskPayload], bool], check: Callable[[], None]
    ) -> None:
        """Remove those of the run's tasks that wait, unless a worker has taken them. `check` as above.

        Of a task that is taken in this moment both may happen: then it runs, and will not be delivered again.
        """
        for stream, subject in _places(run_id, command.task, command.group, command.worker):
            if not (there := await self._reader.subject(stream, subject)):
                continue
            taken = await self._taken(command.task, command.group, command.worker)
            for stored in there:
                if stored.seq > taken and waits(decode(stored.data)):
                    await self._delete(stream, stored, check)

    async def queued(self, run_id: str, command: DispatchTask) -> set[tuple[str, int, int]]:
        """Step, attempt and iteration of all tasks of the run that are in the queue of this one, taken or not."""
        found: set[tuple[str, int, int]] = set()
        for stream, subject in _places(run_id, command.task, command.group, command.worker):
            for stored in await self._reader.subject(stream, subject):
                task = decode(stored.data)
                found.add((task.step_id, task.attempt, task.iteration))
        return found

    async def floors(self, stream: str) -> list[QueueFloor]:
        """The floors of the queues in TASK_QUEUES or STICKY_TASKS, of those with one behind the stream's first message.
        Raises ApiError, Unavailable."""
        state = (await self._broker.api(f"STREAM.INFO.{stream}"))["state"]
        found: list[QueueFloor] = []
        seen = 0
        while state["messages"] and seen < CONSUMERS_MAX:
            page = await self._broker.api(f"CONSUMER.LIST.{stream}", {"offset": seen})
            for info in page["consumers"] or []:
                wanted, seq = info["config"].get("filter_subject"), int(info["ack_floor"]["stream_seq"])
                if wanted and seq >= state["first_seq"]:
                    found.append(QueueFloor(wanted, seq))
            seen += len(page["consumers"] or [])
            if not page["consumers"] or seen >= page["total"]:
                break
        return found

    async def up_to_floor(self, stream: str, floor: QueueFloor, most: int) -> list[Stored]:
        """The first tasks that are stored up to the floor, at most `most`. One that is being acknowledged is among them
        for a moment. Raises Unavailable."""
        found: list[Stored] = []
        first = await self._reader.next(stream, floor.filter, 1)
        if first is None or first.seq > floor.seq:  # a page of what waits would be read for nothing
            return found
        async for stored in self._reader.between(stream, floor.filter, first.seq, floor.seq):
            found.append(stored)
            if len(found) >= most:
                break
        return found

    async def queue_again(self, stored: Stored) -> None:
        """Queue a stored task behind all others; a repeat within 2 min is stored once. Raises Unavailable."""
        message_id = message_ids.of_task_again(stored.subject, stored.seq, stored.at)
        await self._publisher.send(stored.subject, stored.data, {MSG_ID: message_id})

    async def remove(self, stream: str, stored: Stored) -> None:
        """Remove one message; nothing happens where it is gone. Raises Unavailable."""
        await self._delete(stream, stored, lambda: None)

    async def _taken(self, task: str, group: str | None, worker: str | None) -> int:
        """The sequence up to which workers may have tasks of this queue; 0: they have none."""
        stream = names.TASKS if worker is None else names.STICKY
        name = (
            self._durables.get((task, group)) or names.task_consumer(task, group)
            if worker is None
            else names.sticky_consumer(task, worker)
        )
        try:
            found = await self._broker.api(f"CONSUMER.INFO.{stream}.{name}")
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            return 0
        return int(found["delivered"]["stream_seq"]) if found["num_ack_pending"] else 0

    async def withdraw_sticky(self, run_id: str, command: WithdrawSticky, check: Callable[[], None]) -> None:
        """Remove this execution from the tasks of its worker, if it is there. `check` as above."""

        def wanted(stored: Stored) -> bool:
            task = decode(stored.data)
            return (task.step_id, task.iteration, task.attempt) == (command.step_id, command.iteration, command.attempt)

        for subject in names.sticky_subjects(command.task, command.worker, run_id):
            await self._remove(names.STICKY, subject, wanted, check)

    async def _remove(
        self, stream: str, subject: str, wanted: Callable[[Stored], bool], check: Callable[[], None]
    ) -> None:
        """Remove each by its sequence, never by a purge of the subject: while others are queued, delivered and
        acknowledged, a purge makes the broker forget other deliveries of the same consumer, and such tasks of other
        runs never come again (nats-server 2.15.1)."""
        for stored in await self._reader.subject(stream, subject):
            if wanted(stored):
                await self._delete(stream, stored, check)

    async def _delete(self, stream: str, stored: Stored, check: Callable[[], None]) -> None:
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
        """How long the broker waits for the acknowledgement of a task of this type before it delivers it again."""
        name = self._durables.get((task, group)) or names.task_consumer(task, group)
        return int((await self._broker.api(f"CONSUMER.INFO.{names.TASKS}.{name}"))["config"]["ack_wait"]) / 1e9

    async def _durable(self, task: str, group: str | None) -> str:
        """The name of the type's consumer, created if it does not exist; one with a wider filter, or of a former name,
        is used unchanged."""
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
        """The name of another consumer for the type when its own was refused: an existing one by anyone, or a former
        version's.

        If that version gave the name to another type, a spare one is created. Raises Conflict, Unavailable.
        """
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
        """The filter of this consumer; None: it does not exist. Raises Unavailable."""
        try:
            found = await self._broker.api(f"CONSUMER.INFO.{names.TASKS}.{consumer}")
        except ApiError:
            return None
        return str(found["config"].get("filter_subject", ">"))


def _places(run_id: str, task: str, group: str | None, worker: str | None) -> list[tuple[str, str]]:
    """The streams and subjects under which the run's tasks of a type (and group, or of a worker) may wait."""
    if worker is None:
        return [(names.TASKS, subject) for subject in names.task_subjects(task, run_id, group)]
    return [(names.STICKY, subject) for subject in names.sticky_subjects(task, worker, run_id)]
