"""Events of a run before one that came long after them.

To find the next message of a subject, and to remove messages by their subject, the broker looks through all that was
stored from one to the other, and what nobody has read for two minutes it reads from the disk: on a large store that
takes seconds, in which it answers nothing. But it knows at once the first and the last message of a subject, and their
number. So all before the last are read one by one, and the last, which the caller knows, is not looked for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import PAGE_BYTES, DirectReader, Stored
from penstock.broker.run_ids import made_at

FAR = 20_000  # messages in between, for which the broker reads 60 MB
FEW = 256
YOUNG_S = 60.0


async def events_before(
    broker: Broker, reader: DirectReader, subject: str, seq: int, after: int = 0
) -> AsyncGenerator[Stored] | None:
    """The events under this subject before the sequence `seq`, which is that of its last one; others may have come
    since. None: the first is not far away from it, or as far from `after`, there are more than FEW, or a copy of the
    stream would be read, which may miss some. The call and the reading raise Unavailable."""
    if seq <= FAR or await reader.leaders.needed(names.HISTORY):
        return None
    first = await reader.next_alone(names.HISTORY, subject, 1)
    if first is None or first.seq >= seq - FAR or first.seq < after - FAR:
        return None
    number = (await broker.messages_by_subject(names.HISTORY, subject)).get(subject, 0)
    return None if number > FEW else _from(reader, first, number, seq)


async def _from(reader: DirectReader, first: Stored, number: int, seq: int) -> AsyncGenerator[Stored]:
    """The first of so many events and those behind it, without the last, and without what is not before `seq`."""
    found: Stored | None = first
    for place in range(1, max(2, number)):
        if found is None or found.seq >= seq:
            return
        yield found
        if place < number - 1:
            found = await reader.next_alone(names.HISTORY, first.subject, found.seq + 1)


async def pages_to_far(
    broker: Broker, reader: DirectReader, run_id: str, after: int, last: Stored, pages: AsyncGenerator[list[Stored]]
) -> AsyncGenerator[list[Stored]]:
    """The run's events after a sequence up to `last`, its last one, where that is far away; else those pages."""
    events = None
    if _may_be_far(run_id, after, last):
        events = await events_before(broker, reader, names.stored_subject(run_id), last.seq, after)
    async with aclosing(pages if events is None else _pages(events, after, last)) as chosen:
        async for page in chosen:
            yield page


async def _pages(events: AsyncGenerator[Stored], after: int, last: Stored) -> AsyncGenerator[list[Stored]]:
    page, size = list[Stored](), 0
    async with aclosing(events):
        async for event in events:
            if event.seq > after:
                if page and size + len(event.data) > PAGE_BYTES:
                    yield page
                    page, size = [], 0
                page.append(event)
                size += len(event.data)
    yield [*page, last]


def _may_be_far(run_id: str, after: int, last: Stored) -> bool:
    """Most runs that are read have just been started, as their ids say: the broker is not asked more about them."""
    if after:
        return last.seq - after > FAR
    try:
        return last.seq > FAR and abs(last.at - made_at(run_id)) > YOUNG_S
    except ValueError:  # another program has made the id
        return last.seq > FAR
