"""What must hold of the limits of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker import names
from penstock.broker.nats.headers import EXPECT_SEQ
from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import Decided, Released, Requested, decode
from tests.simulation.broken import Broken
from tests.simulation.limited.log import LimitStory
from tests.simulation.limited.out import Out
from tests.simulation.streams import Message

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

ROOM_S = 30.0  # in peace nobody waits for longer than this where there is room


class LimitLaws:
    """Owned by the watch of a world. `stored` is told of each record of the LIMITS stream."""

    def __init__(self, watch: Watch) -> None:
        self.stories: dict[LimitName, LimitStory] = {}
        self._by_id: dict[str, LimitStory] = {}
        self._allowed: dict[LimitName, int] = {}
        self._room_since: dict[LimitName, tuple[int, float]] = {}
        self.out = Out(watch.runs, watch.of, self.stories)

    def stored(self, message: Message) -> None:
        """Raises Broken."""
        if not message.data:
            return  # what shards note for one another
        record = decode(message.data)
        limit_id, is_decision = names.limit_of(message.subject)
        if isinstance(record, Decided) is not is_decision:
            raise Broken(f"{type(record).__name__} is stored as {message.subject}")
        if isinstance(record, Released) and record.why == "backstop":
            raise Broken(f"{record.holder} had a slot that nobody gave back")
        if isinstance(record, Requested | Decided) and limit_id not in self._by_id:
            self._by_id[limit_id] = self.stories[record.name] = LimitStory(record.name)
        if isinstance(record, Requested):
            self._allowed[record.name] = record.allowed.limit
            self.out.requested(record)
        if isinstance(record, Decided) and record.allowed.limit != self._allowed[record.name]:
            raise Broken(f"{record.name} allows {record.allowed.limit}, not {self._allowed[record.name]}")
        story = self._by_id.get(limit_id)
        if isinstance(record, Decided) and message.headers.get(EXPECT_SEQ) == "0" and story and story.is_late(record):
            story.record_late(record)
        elif story is not None:
            story.record(record, message.seq, message.at)

    def left(self) -> dict[str, int]:
        """What is held or waited for, when everything has ended."""
        open_ = {name: (*story.open(), story.late) for name, story in self.stories.items()}
        held = {
            f"holders of {name.kind} {name.scope}": len(holders - late) for name, (_, holders, late) in open_.items()
        }
        waits = {f"who wait for {name.kind} {name.scope}": len(waiting) for name, (waiting, _, _) in open_.items()}
        return held | waits

    def check_room(self, now: float) -> None:
        """In peace. Raises Broken when somebody has waited for long, and there was room."""
        for name, story in self.stories.items():
            turns, since = self._room_since.get(name, (-1, now))
            if not story.has_room(self._allowed.get(name, 1)) or turns != story.turns:
                self._room_since[name] = story.turns, now
            elif now - since > ROOM_S:
                raise Broken(f"{sorted(story.open()[0])} wait for {name}, and there is room")
