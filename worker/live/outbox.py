"""Gathers what an execution says, lines or chunks, and sends it in messages.

One message is on its way at a time, and what comes meanwhile is the next one. So the first line leaves at once, lines
keep their order, and many of them take few messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from penstock.broker.live.allowance import Allowance
from penstock.config.limits import ENTRIES_MAX, MIB
from penstock.config.logging import get_logger
from penstock.config.process.background import end, start
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, Invalid, NotFound, PenstockError

OUTBOX_BYTES_MAX = 4 * MIB  # of one execution, waiting to be sent
OUTBOXES_BYTES_MAX = 64 * MIB  # of all executions of a worker
MESSAGE_BYTES = 64 << 10  # with so much, or one entry more, a message is complete
CLOSE_S_MAX = 2.0  # what the end of the worker waits for all of them
AGAIN_S = 1.0  # after a failure, and before dropped entries are mentioned

log = get_logger()


class Parcel(NamedTuple):
    """What one message has: so many dropped entries, then these. `number` counts the messages of an outbox."""

    entries: Sequence[bytes]
    dropped: int
    number: int


Send = Callable[[Parcel], Awaitable[None]]


class Outboxes:
    """What all outboxes of a worker share. Owned by the worker; `aclose` when its executions have ended."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.lock: Lock = Lock()
        self.size: int = 0  # in bytes, of all that waits
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = start(work, name="step_output")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call(self, what: Callable[[], None]) -> None:
        """Have the loop call this, from any thread."""
        with suppress(RuntimeError):  # the loop has been closed
            self.loop.call_soon_threadsafe(what)

    async def aclose(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S_MAX)
        await end(*self._tasks)


class Outbox:
    """Of one execution. `put` is for any thread, all else for the loop. Entries that find no room are dropped and
    counted: where they are missing, an entry says how many.

    A service that does not know the execution knows it again when its task has been delivered again, and then takes its
    outcome: what it refused meanwhile is kept, and sent again every AGAIN_S until `finish`, and by `try_again`.
    """

    def __init__(self, send: Send, shared: Outboxes) -> None:
        self._send, self._shared = send, shared
        self._allowance = Allowance(time.monotonic())
        self._waiting: deque[bytes | int] = deque()  # a number stands for so many dropped entries
        self._bytes = self._dropped = self._number = 0
        self._full = self._awake = self._again = False
        self._closed = asyncio.Event()
        self._refused: Parcel | None = None  # the service did not know the execution
        self._sending: asyncio.Task[None] | None = None

    def put(self, entry: bytes) -> None:
        """Have it sent, or drop it."""
        with self._shared.lock:
            if self._closed.is_set():
                return
            if self._admits(len(entry)):
                self._mention_dropped()
                self._waiting.append(entry)
                self._bytes += len(entry)
                self._shared.size += len(entry)
                then, self._awake = None if self._awake else self._begin, True
            else:
                self._dropped += 1
                then = self._mention_later if self._dropped == 1 else None
        if then is not None:
            self._shared.call(then)

    def finish(self) -> None:
        """Take nothing more, and send all that is here, also how much was dropped."""
        self._mention_now()
        self._closed.set()
        self._again = True

    async def sent(self) -> None:
        """Return when all is stored. To be called behind `finish`; whoever gives it up ends nothing."""
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    async def try_again(self) -> None:
        """Send once more what was refused because the service did not know the execution. To be called behind `sent`,
        and only once."""
        self._again = False
        if self._refused is not None:
            self._begin()
            await self.sent()

    def close(self) -> None:
        """Take nothing more, and give up what is refused."""
        self._closed.set()
        self._again = False
        if self._sending is None and self._refused is not None:
            self._forget()

    def _admits(self, size: int) -> bool:
        """An outbox that was full takes nothing until half of it has left."""
        shared = self._shared.size + size > OUTBOXES_BYTES_MAX
        self._full = self._bytes + size > (OUTBOX_BYTES_MAX // 2 if self._full else OUTBOX_BYTES_MAX)
        return not (self._full or shared) and self._allowance.take(size, time.monotonic())

    def _mention_dropped(self) -> None:
        if self._dropped:
            self._waiting.append(self._dropped)
            self._dropped = 0

    def _mention_later(self) -> None:
        self._shared.loop.call_later(AGAIN_S, self._mention_now)

    def _mention_now(self) -> None:
        with self._shared.lock:
            self._mention_dropped()
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        if self._sending is None:
            self._sending = self._shared.start(self._send_all())

    async def _send_all(self) -> None:
        try:
            while (parcel := self._refused or self._take()) is not None:
                self._refused = await self._refused_of(parcel)
                if self._refused is None:
                    continue
                if self._closed.is_set():
                    return None if self._again else self._forget()
                await self._until_closed(AGAIN_S)
        finally:
            self._sending = None

    async def _refused_of(self, parcel: Parcel) -> Parcel | None:
        """Send it. Returns it when the service does not know the execution."""
        try:
            await self._send(parcel)
        except NotFound as error:
            log_rate_limited(log, "step_output_refused", entries=len(parcel.entries), error=str(error))
            return parcel
        except (Conflict, Invalid) as error:  # the attempt is over, or the service knows of no such thing
            self.close()
            log_rate_limited(log, "step_output_refused", entries=len(parcel.entries), error=str(error))
        except PenstockError as error:
            log_rate_limited(log, "step_output_dropped", entries=len(parcel.entries), error=str(error))
            with self._shared.lock:
                self._waiting.appendleft(parcel.dropped + len(parcel.entries))
            await asyncio.sleep(AGAIN_S)
        return None

    async def _until_closed(self, most_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._closed.wait()

    def _forget(self) -> None:
        """Give up the refused one, and what is behind it."""
        with self._shared.lock:
            self._shared.size -= self._bytes
            self._bytes, self._refused = 0, None
            self._waiting.clear()

    def _take(self) -> Parcel | None:
        """The next message; None when there is nothing to send."""
        entries: list[bytes] = []
        size = 0
        with self._shared.lock:
            waiting = self._waiting
            dropped = self._dropped_first()
            while waiting and size < MESSAGE_BYTES and len(entries) < ENTRIES_MAX - 1:
                entry = waiting[0]
                if isinstance(entry, int):
                    break
                waiting.popleft()
                entries.append(entry)
                size += len(entry)
            self._bytes -= size
            self._shared.size -= size
            if not entries and not dropped:
                self._awake = False
                return None
        self._number += 1
        return Parcel(entries, dropped, self._number)

    def _dropped_first(self) -> int:
        dropped = 0
        while self._waiting and isinstance(first := self._waiting[0], int):
            dropped += first
            self._waiting.popleft()
        return dropped
