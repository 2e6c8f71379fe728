"""One consumer of all partitions: what it acknowledges is handled, whatever comes in which order."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.runs.shared.common_reader import CommonReader
from penstock.actors.runs.shared.mailbox import PartitionQueue, PendingEvent
from penstock.broker.nats.pull import Delivery

COUNT = 4
ACT = st.sampled_from(["deliver", "deliver", "handle", "handle", "drop", "pop", "acknowledge", "again"])


class Story:
    """A broker, a reader and its queues, one act after the other."""

    def __init__(self, partitions: list[int]) -> None:
        self.partitions = partitions  # of the messages: sequence 1 is the first
        self.queues = [PartitionQueue(number, "engine-all-1", 1) for number in range(COUNT)]
        self.reader = CommonReader("engine-all-1", self.queues, self._take)
        self.next, self.floor = 1, 0
        self.handled: set[int] = set()

    def _take(self, queue: PartitionQueue, delivery: Delivery) -> None:
        event = PendingEvent(delivery, float(delivery.seq), False)
        event.handled = delivery.seq in self.handled
        queue.events.append(event)

    def deliver(self) -> None:
        if self.next <= len(self.partitions):
            subject = f"history.{self.partitions[self.next - 1]}.run"
            place = f"$JS.ACK.H.c.1.{self.next}.{self.next}.0.0"
            self.reader.take(Delivery(None, subject, place, b""))  # type: ignore[arg-type]
            self.next += 1

    def handle(self, pick: int) -> None:
        pending = [event for queue in self.queues for event in queue.events if not event.handled]
        if pending:
            event = pending[pick % len(pending)]
            event.handled = True
            self.handled.add(event.delivery.seq)

    def drop(self, pick: int) -> None:
        self.queues[pick % COUNT].drop_handled()

    def pop(self, pick: int, before: float = inf) -> None:
        queue = self.queues[pick % COUNT]
        if (last := queue.acknowledgeable(before)) is not None:
            assert last.received < before, "what came later is held back"
            self.reader.handled(queue, last.delivery)
            queue.start = last.delivery.seq + 1

    def acknowledge(self) -> None:
        if (last := self.reader.acknowledgeable()) is not None:
            assert last.seq > self.floor, "it goes forward"
            self.floor = last.seq
        assert set(range(1, self.floor + 1)) <= self.handled

    def again(self) -> None:
        """The broker delivers what is not acknowledged."""
        start = self.reader.begin(len(self.partitions))
        assert set(range(1, start)) <= self.handled
        self.next = self.floor + 1


@given(
    st.lists(st.integers(0, COUNT - 1), max_size=30),
    st.lists(st.tuples(ACT, st.integers(0, 99)), max_size=120),
)
def test_only_what_every_partition_has_handled_is_acknowledged(
    partitions: list[int], acts: list[tuple[str, int]]
) -> None:
    story = Story(partitions)
    for act, pick in acts:
        if act in ("handle", "drop"):
            getattr(story, act)(pick)
        elif act == "pop":
            story.pop(pick, pick / 3)
        else:
            getattr(story, act)()
    story.again()
    for _ in partitions:
        story.deliver()
    while any(not event.handled for queue in story.queues for event in queue.events):
        story.handle(0)
    for number in range(COUNT):
        story.pop(number)
    story.acknowledge()
    assert len(partitions) == story.floor, "in the end all is"


async def test_a_partition_that_is_given_up_gets_no_events_and_holds_nothing_back() -> None:
    story = Story([0, 1, 2, 3])
    for _ in range(4):
        story.deliver()
    await story.reader.give_up(story.queues[2])
    assert [0, 1, 3] == story.reader.partitions
    for queue in (story.queues[0], story.queues[1], story.queues[3]):
        queue.events[0].handled = True
        story.pop(queue.number)
    acknowledged = story.reader.acknowledgeable()
    assert acknowledged is not None
    assert 4 == acknowledged.seq
    story.queues[2].events.clear()
    story.next = 3
    story.deliver()
    assert not story.queues[2].events, "its events go to another consumer"


async def test_a_reader_ends_with_its_last_partition() -> None:
    story, ended = Story([]), list[bool]()
    story.reader.pulling.callback(ended.append, True)
    for queue in story.queues:
        assert not ended
        await story.reader.give_up(queue)
    assert [True] == ended
