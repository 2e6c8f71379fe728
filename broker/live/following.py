"""Following what a run says: the stored messages, then each new one as it is stored."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

from penstock.broker import names
from penstock.broker.live.said import Page, SaidStream
from penstock.broker.nats.direct import Stored
from penstock.broker.streams.watch import Copies, Copy
from penstock.engine.errors import Unavailable

COPIED_MAX = 5000  # messages that came as copies; then what was missed before them is looked for


class Follower:
    """Owned by one reader (`follow`). `end` has it come to its end, with all that is stored by then."""

    def __init__(self, said: SaidStream, run_id: str, step_id: str | None, after: int, copies: Copies) -> None:
        """`after` is the sequence of the last message that is not wanted."""
        self._said, self._run_id, self._step_id = said, run_id, step_id
        self._copies = copies
        self._read_to = after  # nothing up to here is missing
        self._copied: set[int] = set()  # what came as copies, beyond that
        self._last: dict[bytes, int] = {}  # of each subject, the last of these
        self._ended = False

    def end(self) -> None:
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Have an empty page come now."""
        self._copies.wake()

    async def pages(self) -> AsyncGenerator[Page]:
        """Messages in order; an empty page when there is nothing more for now, at least every 2 s. Raises Unavailable
        when the last of them cannot be read."""
        read_now = True
        while True:
            ending = self._ended
            if ending:  # what is not read now would be missing
                async for page in self._stored():
                    yield page
                return
            if read_now:
                with suppress(Unavailable):  # the next quiet time reads again
                    async for page in self._stored():
                        yield page
            yield []
            taken, lost = await self._copies.take()
            page, missing = self._new(taken)
            if page:
                yield page
            # A quiet time may also mean that copies were lost: a reconnect shows in nothing else.
            read_now = lost or missing or not taken or len(self._copied) > COPIED_MAX

    async def _stored(self) -> AsyncGenerator[Page]:
        async with aclosing(self._said.pages(self._run_id, self._step_id, self._read_to + 1)) as pages:
            async for found in pages:
                self._read_to = found[-1].seq
                if page := [one for one in found if one.seq not in self._copied]:
                    yield page
        self._copied = {seq for seq in self._copied if seq > self._read_to}
        self._last = {subject: seq for subject, seq in self._last.items() if seq > self._read_to}

    def _new(self, copies: list[Copy]) -> tuple[Page, bool]:
        """Those that follow on what is known, and whether one between is missing: then reading brings it, and all after
        it."""
        page: Page = []
        for copy in copies:
            known = max(self._read_to, self._last.get(copy.subject, 0))
            if copy.before > known:
                return page, True
            if copy.seq > known:
                self._last[copy.subject] = copy.seq
                self._copied.add(copy.seq)
                page.append(Stored(_subject(copy.subject), copy.seq, time.time(), copy.data))
        return page, False


def _subject(copy: bytes) -> str:
    return copy.decode().removeprefix("watch.")


@asynccontextmanager
async def follow(said: SaidStream, run_id: str, step_id: str | None, after: int) -> AsyncIterator[Follower]:
    """A follower of what a run, or a step and what is below it, says after a message, for the time of the block."""
    copies, client = Copies(None), said.broker.client
    async with AsyncExitStack() as stack:
        for subject in said.subjects(run_id, step_id):
            subscription = await client.receive(names.copy_subject(subject), copies.receive)
            stack.push_async_callback(client.stop_receiving, subscription)
        yield Follower(said, run_id, step_id, after, copies)
