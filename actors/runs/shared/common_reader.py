"""The deliveries of a consumer of all partitions: each goes to its partition's queue, and what all of the queues have
handled is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from penstock.actors.runs.shared.mailbox import PartitionQueue
from penstock.broker.names import HISTORY_START
from penstock.broker.nats.pull import Delivery

_PARTITION_AT = len(HISTORY_START)
_PASSED_OVER = -1


class CommonReader:
    """Owned by a shard, from when it has all partitions until it gives the last one of them up. Of one that was given
    up, its claim says how far it is, not this consumer."""

    def __init__(
        self, consumer: str, queues: Iterable[PartitionQueue], take: Callable[[PartitionQueue, Delivery], None]
    ) -> None:
        self.consumer, self._take = consumer, take
        self._queues = {str(queue.number): queue for queue in queues}
        self._handled: dict[
            int, Delivery
        ] = {}  # by partition the last one that is not acknowledged, or was passed over
        self.pulling = AsyncExitStack()

    @property
    def partitions(self) -> list[int]:
        """Those whose events come from here."""
        return [queue.number for queue in self._queues.values()]

    def take(self, delivery: Delivery) -> None:
        """Give it to its partition's queue, unless that is given up, or has handled it already."""
        delivery.read_place()
        subject = delivery.subject
        queue = self._queues.get(subject[_PARTITION_AT : subject.index(".", _PARTITION_AT)])
        if queue is None:
            return
        if delivery.seq >= queue.start:
            self._take(queue, delivery)
        elif (last := self._handled.get(_PASSED_OVER)) is None or delivery.seq > last.seq:
            self._handled[_PASSED_OVER] = delivery

    def handled(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Note that a partition's events up to this one are handled."""
        self._handled[queue.number] = delivery

    def begin(self, takeover_seq: int) -> int:
        """Start anew: as PartitionQueue.begin, for all queues. Returns the sequence before which everything of all
        these partitions is handled."""
        self._handled.clear()
        for queue in self._queues.values():
            queue.begin(takeover_seq)
        return min([takeover_seq + 1, *(queue.start for queue in self._queues.values())])

    def acknowledgeable(self) -> Delivery | None:
        """Remove the last event before the first one that any queue has not handled: its acknowledgement covers those
        of all partitions before it."""
        first = min((queue.first for queue in self._queues.values() if queue.first is not None), default=None)
        before = [one for one in self._handled.values() if first is None or one.seq < first]
        self._handled = {number: one for number, one in self._handled.items() if one not in before}
        return max(before, key=lambda one: one.seq, default=None)

    async def give_up(self, queue: PartitionQueue) -> None:
        """Take no more events of this partition, and end with the last one."""
        self._queues.pop(str(queue.number), None)
        if not self._queues:
            await self.pulling.aclose()
