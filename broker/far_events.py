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
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.run_ids import made_at

FAR = 20_000  # messages in between, for which the broker reads 60 MB
FEW = 256
YOUNG_S = 60.0


async def events_before(
    broker: Broker, reader: DirectReader, subject: str, seq: int, after: int = 0
) -> list[Stored] | None:
    """The events under this subject before the sequence `seq`, which is that of its last one; others may have come
    since. None: the first is not far away from it, or as far from `after`, there are more than FEW, or a copy of the
    stream would be read, which may miss some. Raises Unavailable."""
    if seq <= FAR or await reader.leaders.needed(names.HISTORY):
        return None
    first = await reader.next_alone(names.HISTORY, subject, 1)
    if first is None or first.seq >= seq - FAR or first.seq < after - FAR:
        return None
    number = (await broker.messages_by_subject(names.HISTORY, subject)).get(subject, 0)
    if number > FEW:
        return None
    found = [first]
    while len(found) < number - 1:
        following = await reader.next_alone(names.HISTORY, subject, found[-1].seq + 1)
        if following is None or following.seq >= seq:
            break
        found.append(following)
    return found


async def pages_to_far(
    broker: Broker, reader: DirectReader, run_id: str, after: int, last: Stored, pages: AsyncGenerator[list[Stored]]
) -> AsyncGenerator[list[Stored]]:
    """The run's events after a sequence up to `last`, its last one, in one page where that is far away; else those
    pages."""
    found = None
    if _may_be_far(run_id, after, last):
        found = await events_before(broker, reader, names.stored_subject(run_id), last.seq, after)
    if found is not None:
        yield [one for one in (*found, last) if one.seq > after]
        return
    async with aclosing(pages):
        async for page in pages:
            yield page


def _may_be_far(run_id: str, after: int, last: Stored) -> bool:
    """Most runs that are read have just been started, as their ids say: the broker is not asked more about them."""
    if after:
        return last.seq - after > FAR
    try:
        return last.seq > FAR and abs(last.at - made_at(run_id)) > YOUNG_S
    except ValueError:  # another program has made the id
        return last.seq > FAR
