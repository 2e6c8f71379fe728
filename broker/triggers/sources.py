"""The sources of trigger events: a durable consumer for each trigger, on the stream that stores what it consumes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.pull import Delivery, Pull, open_pull
from penstock.broker.streams.events import Events
from penstock.broker.triggers.batches import TriggerBatches
from penstock.broker.triggers.captures import Captures
from penstock.broker.triggers.triggers import Retired, StoredTrigger
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.subjects import covers
from penstock.engine.errors import Invalid, NotFound, Unavailable
from penstock.engine.trigger.trigger import Kind, Trigger

PENDING_MAX = 256  # events of one trigger that are being handled
BATCH = 32
ACK_WAIT_S = 10  # handling a trigger event takes milliseconds
CREATE_TRIES_MAX = 10


class Sources:
    """Consumers, schedules and captures of triggers. All of its methods can be repeated."""

    def __init__(self, broker: Broker, events: Events, captures: Captures, batches: TriggerBatches) -> None:
        self._broker, self._events, self._captures, self._batches = broker, events, captures, batches

    async def check(self, trigger: Trigger, leaving: Collection[str]) -> None:
        """Raises Invalid when no consumer can receive all of the trigger's subject, and no stream can be created for
        it.

        Streams that only the generations `leaving` use count as removed.
        """
        if trigger.subject is not None:
            await self._keeping(trigger.subject.subject, leaving)

    async def choose(self, kept: StoredTrigger) -> tuple[str, int]:
        """The stream that a subject trigger consumes from now on, created if there is none, and its last sequence.
        Raises Invalid as `check` does."""
        assert kept.trigger.subject is not None
        subject = kept.trigger.subject.subject
        stream = await self._keeping(subject, ()) or await self._captures.join(
            kept.trigger.name, kept.generation, subject
        )
        if stream == names.capture_stream(kept.trigger.name, kept.generation):
            return stream, 0  # made for it: all that is there came since
        return stream, int((await self._broker.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])

    async def open(self, kept: StoredTrigger) -> None:
        """Create the trigger's consumer, and what its batches need. Raises NotFound when its stream is gone."""
        one_by_one = kept.trigger.cron is not None or kept.trigger.batching is not None  # in their order
        consumer = ConsumerConfig(
            stream=kept.stream,
            name=names.trigger_consumer(kept.trigger.name, kept.generation),
            filter_subject=_filter(kept.trigger),
            ack_wait_s=ACK_WAIT_S,
            pending_max=1 if one_by_one else PENDING_MAX,
            start_seq=kept.after_seq + 1,
        )
        if kept.trigger.batching is not None:
            await self._batches.make()
            await self._create(_ticks(kept))
        await self._create(consumer)

    async def _create(self, consumer: ConsumerConfig) -> None:
        for _ in range(CREATE_TRIES_MAX):
            try:
                await create_consumer(self._broker, consumer)
                return
            except ApiError as error:
                if error.err_code == Code.STREAM_NOT_FOUND:
                    raise NotFound(f"the stream {consumer.stream} is gone") from error
                if error.err_code == Code.CONSUMER_EXISTS:
                    return
                if error.err_code != Code.CONSUMER_GONE:
                    raise
        raise Unavailable(f"the consumer {consumer.name} is made and removed by too many at once")

    async def close(self, trigger: str, retired: Retired) -> None:
        """Remove everything that belongs to a generation."""
        consumer = names.trigger_consumer(trigger, retired.generation)
        if retired.stream:
            await self._broker.remove(f"CONSUMER.DELETE.{retired.stream}.{consumer}")
        if retired.batches:
            await self._broker.remove(f"CONSUMER.DELETE.{names.BATCHES}.{consumer}")
            await self._batches.forget(retired.generation)
        await self._events.withdraw(trigger, retired.generation)
        await self._captures.leave(trigger, retired.generation, retired.stream)

    def consume(
        self, kept: StoredTrigger, take: Callable[[Delivery], None], room: Callable[[], int]
    ) -> AbstractAsyncContextManager[Pull]:
        """The trigger's events, shared with every other process that consumes them, for the time of the block."""
        consumer = names.trigger_consumer(kept.trigger.name, kept.generation)
        return open_pull(self._broker, kept.stream, consumer, take, batch=BATCH, room=room)

    def consume_ticks(
        self, kept: StoredTrigger, take: Callable[[Delivery], None], room: Callable[[], int]
    ) -> AbstractAsyncContextManager[Pull]:
        """As `consume`, for the ticks of the trigger's batches."""
        ticks = _ticks(kept)
        return open_pull(self._broker, ticks.stream, ticks.name, take, batch=BATCH, room=room)

    async def _keeping(self, subject: str, leaving: Collection[str]) -> str | None:
        """The existing stream (except our captures) that stores all of the subject. Raises Invalid for one that stores
        a part of it."""
        found = (await self._broker.api("STREAM.LIST", {"subject": subject})).get("streams") or []
        configs = [one["config"] for one in found if not one["config"]["name"].startswith(names.CAPTURE_PREFIX)]
        captures = {one["config"]["name"] for one in found} - {config["name"] for config in configs}
        for config in configs:
            if config["retention"] == "workqueue":
                raise Invalid(
                    f"subject: subject {quoted(subject)} is stored by the work queue {config['name']}, "
                    "whose messages cannot be shared"
                )
            if any(covers(wide, subject) for wide in config.get("subjects", ())):
                return str(config["name"])
        if configs:
            raise Invalid(
                f"subject: subject {quoted(subject)} is stored by the stream {configs[0]['name']} only in part"
            )
        for captured in await self._captures.used(captures, leaving):
            if not covers(captured, subject):
                raise Invalid(_wider(subject, captured))
        return None


def _wider(subject: str, captured: str) -> str:
    """The error for a subject that is wider than a captured one: no two streams may store the same message, and stored
    messages cannot be moved."""
    return (
        f"subject: subject {quoted(subject)} overlaps with {quoted(captured)} of another trigger and is not within it "
        "(make the trigger with the wider subject first)"
    )


def _ticks(kept: StoredTrigger) -> ConsumerConfig:
    """The consumer of the ticks of a trigger's batches."""
    return ConsumerConfig(
        stream=names.BATCHES,
        name=names.trigger_consumer(kept.trigger.name, kept.generation),
        filter_subject=names.batch_tick(kept.generation, "*"),
        ack_wait_s=ACK_WAIT_S,
        pending_max=PENDING_MAX,
    )


def _filter(trigger: Trigger) -> str:
    match trigger.kind:
        case Kind.CRON:
            return names.cron_target(trigger.name)
        case Kind.WEBHOOK:
            return names.webhook_subject(trigger.name)
        case Kind.HTTP:
            raise AssertionError("requests start runs themselves: there is nothing to consume")
        case Kind.EVENT:
            assert trigger.event is not None
            return trigger.event.subject
        case Kind.SUBJECT:
            assert trigger.subject is not None
            return trigger.subject.subject
