"""Watching one run live: the broker sends a copy of each stored event to whoever subscribes. Without subscribers, that
takes it 5 µs of CPU an event.

Copies may be lost with a connection, so missing events are read from the stream: each copy has the sequence of the
event before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from penstock.broker import names
from penstock.broker.nats.client import BriefSubscription
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.config.limits import MIB
from penstock.engine.errors import Unavailable

QUIET_S = 2.0
COPIES_MAX, COPIES_BYTES_MAX = 1000, 4 * MIB  # that wait for one watcher: a client may read as slowly as it likes
SEQUENCE, BEFORE = b"\r\nNats-Sequence: ", b"\r\nNats-Last-Sequence: "  # the broker's headers come last


class Copy:
    """A stored message, by the subject of its copy; `before` is the sequence of the same subject's message before
    it."""

    __slots__ = ("before", "data", "headers", "seq", "subject")

    def __init__(self, subject: bytes, headers: bytes, data: bytes) -> None:
        self.subject, self.headers, self.data = subject, headers, data
        self.seq, self.before = _number(headers, SEQUENCE), _number(headers, BEFORE)


def _number(headers: bytes, name: bytes) -> int:
    begin = headers.rindex(name) + len(name)
    return int(headers[begin : headers.index(b"\r\n", begin)])


Wakes = Callable[[bytes], bool]
"""Whether an event of this body is worth waking the watcher for; others are handed over with the next that is."""


Begin = Callable[[], Awaitable[bool]]
"""Starts the run once its copies are subscribed to, so that none is missed; true of a run that was not there before,
whose stored events need not be read."""


class Copies:
    """Received copies, until the watcher takes them."""

    def __init__(self, wakes: Wakes | None) -> None:
        self._wakes = wakes
        self._waiting: list[tuple[bytes, bytes, bytes]] = []
        self._bytes = 0
        self._lost = self._awake = False
        self._loop = asyncio.get_running_loop()
        self._wakened: asyncio.Future[None] | None = None

    def receive(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self._waiting.append((subject, headers or b"", data))
        self._bytes += len(data)
        if len(self._waiting) > COPIES_MAX or self._bytes > COPIES_BYTES_MAX:
            self._waiting, self._bytes, self._lost = [], 0, True
        if self._wakes is None or self._wakes(data):
            self.wake()

    def wake(self) -> None:
        """Have `take` return now."""
        self._awake = True
        if self._wakened is not None and not self._wakened.done():
            self._wakened.set_result(None)

    async def take(self) -> tuple[list[Copy], bool]:
        """All copies received, when `wakes` is true of one or after a quiet time (perhaps none); and whether some were
        dropped.

        A slow watcher reads dropped ones from the stream.
        """
        taken, lost = await self._take(QUIET_S)
        return [Copy(*one) for one in taken], lost

    async def newest(self, quiet_s: float) -> Copy | None:
        """As `take`, for who needs no more than the newest one."""
        taken, _ = await self._take(quiet_s)
        return Copy(*taken[-1]) if taken else None

    async def _take(self, quiet_s: float) -> tuple[list[tuple[bytes, bytes, bytes]], bool]:
        if not self._awake:
            self._wakened = self._loop.create_future()
            quiet = self._loop.call_later(quiet_s, self.wake)
            try:
                await self._wakened
            finally:
                quiet.cancel()
        taken, lost = self._waiting, self._lost
        self._waiting, self._bytes, self._lost, self._awake = [], 0, False, False
        return taken, lost


async def watch(broker: Broker, reader: DirectReader, run_id: str, after: int) -> AsyncGenerator[Stored | None, None]:
    """The run's events after a sequence, then each new one as it is stored. It never ends.

    Yields None when there is nothing more for now: after the stored events, and after each quiet 2 s.
    """
    async with aclosing(batches(broker, reader, run_id, after)) as coming:
        async for batch in coming:
            for stored in batch:
                yield stored
            if not batch:
                yield None


async def batches(
    broker: Broker,
    reader: DirectReader,
    run_id: str,
    after: int,
    wakes: Wakes | None = None,
    begin: Begin | None = None,
) -> AsyncGenerator[Sequence[Stored], None]:
    """As `watch`, all available events at once; an empty batch when there is nothing more for now.

    With `wakes`, new events come when it is true of one of them, or after the quiet time. With `begin`, the first batch
    is empty and comes when `begin` has returned.
    """
    subject = names.stored_subject(run_id)
    async with _copies(broker, run_id, wakes) as copies:
        read_now = quiet = True
        if begin is not None:
            read_now = quiet = not await begin()
            yield ()
        while True:
            if read_now:
                async for page in _read(reader, subject, after):
                    after = page[-1].seq
                    yield page
            if quiet:
                yield ()
            taken, lost = await copies.take()
            # A quiet time may also mean that copies were lost: a reconnect shows in nothing else.
            quiet = not taken and not lost
            batch, missing = _following(taken, subject, after)
            read_now = quiet or lost or missing  # reading brings what is missing, and all others
            if batch:
                after = batch[-1].seq
                yield batch


class RunEvents:
    """The events of one run for the time of the block, for who waits for a certain one. A class: for each of thousands
    of waits, the generators of `batches` would take longer than all else."""

    __slots__ = ("_after", "_broker", "_copies", "_reader", "_run_id", "_subject", "_subscription")
    _subscription: BriefSubscription

    def __init__(self, broker: Broker, reader: DirectReader, run_id: str, wakes: Wakes) -> None:
        self._broker, self._reader, self._run_id, self._after = broker, reader, run_id, 0
        self._subject = names.stored_subject(run_id)
        self._copies = Copies(wakes)

    async def __aenter__(self) -> RunEvents:
        subject = names.watch_subject(self._run_id)
        self._subscription = self._broker.client.receive_briefly(subject, self._copies.receive)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._broker.client.stop_receiving_later(self._subscription)

    async def last(self) -> Stored | None:
        """The last event that is stored; None: there is none, or the broker is unavailable."""
        with suppress(Unavailable):
            return await self._reader.one(names.HISTORY, self._subject)
        return None

    async def newest(self, quiet_s: float) -> Stored | None:
        """The newest event, when `wakes` is true of one that came; None after a quiet time."""
        copy = await self._copies.newest(quiet_s)
        return None if copy is None else _stored(copy, self._subject)

    async def stored(self) -> AsyncGenerator[Sequence[Stored]]:
        """Pages of the events that are stored and were not given by this or by `more`."""
        async for page in _read(self._reader, self._subject, self._after):
            self._after = page[-1].seq
            yield page

    async def more(self) -> Sequence[Stored] | None:
        """The next events, when `wakes` is true of one; None when they must be read: some are missing, or it has been
        quiet, as it is when copies were lost with the connection."""
        taken, lost = await self._copies.take()
        if lost or not taken:
            return None
        found, missing = _following(taken, self._subject, self._after)
        if missing:
            return None
        self._after = found[-1].seq if found else self._after
        return found


def _following(taken: Sequence[Copy], subject: str, after: int) -> tuple[list[Stored], bool]:
    """Those of the copies that follow on this sequence, and whether one in between is missing."""
    found: list[Stored] = []
    for copy in taken:
        if copy.before > after:
            return found, True
        if copy.seq > after:
            after = copy.seq
            found.append(_stored(copy, subject))
    return found, False


def _stored(copy: Copy, subject: str) -> Stored:
    return Stored(subject, copy.seq, 0.0, copy.data, headers=copy.headers)


@asynccontextmanager
async def _copies(broker: Broker, run_id: str, wakes: Wakes | None) -> AsyncIterator[Copies]:
    copies = Copies(wakes)
    subscription = await broker.client.receive(names.watch_subject(run_id), copies.receive)
    try:
        yield copies
    finally:
        await broker.client.stop_receiving(subscription)


async def _read(reader: DirectReader, subject: str, after: int) -> AsyncIterator[Sequence[Stored]]:
    """The stored events; fewer when the broker becomes unavailable: the next quiet time reads again."""
    with suppress(Unavailable):
        async for page in reader.pages(names.HISTORY, subject, after + 1):
            yield page
