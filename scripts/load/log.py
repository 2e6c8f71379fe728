"""Reads the broker's log for the benchmarks, over a connection of their own.

Nothing is sent to anyone while a bulk of runs is under way: the number of stored messages shows when it is over (asked
for every LOOK_S), and the log itself, read afterwards, shows when each run had ended. How many there will be is known
only from below: workers report the starts of executions that take long enough. Only what measures single runs follows
the log live.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.store import Store

LOOK_S = 0.02
STALLED_S = 30.0
QUIET_S = 0.2
STARTED, COMPLETED = "workflow.started", "workflow.completed"
STEP_STARTED = "step.started"
TIME = re.compile(rb"Nats-Time-Stamp: ([0-9T:.-]{10,26})")


class _Event(Struct, frozen=True):
    type: str
    started_at: str | None = None


_EVENT = msgspec.json.Decoder(_Event)


class Seen(NamedTuple):
    """An event that was stored: its type, the headers of the broker's copy, and when its execution began, where an
    answer says that."""

    type: str
    headers: bytes
    started_at: str | None = None

    @property
    def at(self) -> float:
        """The broker's time of storing it, in s since the epoch, exact to the microsecond."""
        found = TIME.search(self.headers)
        assert found is not None, self.headers
        return datetime.fromisoformat(found[1].decode() + "+00:00").timestamp()


def seconds_of(instant: str) -> float:
    """The s since the epoch of an RFC 3339 time in UTC."""
    return datetime.fromisoformat(instant).timestamp()


class StalledError(Exception):
    """Nothing was stored any more, and not every run had ended."""


class Log:
    """Owned by a environment, as long as its store is open."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def messages(self, stream: str = names.HISTORY) -> int:
        """How many messages the stream holds now."""
        info = await self._store.broker.api(f"STREAM.INFO.{stream}")
        return int(info["state"]["messages"])

    async def until(self, messages: int, stream: str = names.HISTORY) -> None:
        """Return when the stream holds that many. Raises StalledError when nothing is added for STALLED_S."""
        last, moved_at = -1, time.monotonic()
        while (found := await self.messages(stream)) < messages:
            if found != last:
                last, moved_at = found, time.monotonic()
            elif time.monotonic() - moved_at > STALLED_S:
                raise StalledError(f"{stream} holds {found} messages and not {messages}, and nothing moves")
            await asyncio.sleep(LOOK_S)

    async def until_quiet(self, messages: int, stream: str = names.HISTORY) -> None:
        """Return when the stream holds at least that many, no task is left, and nothing was added for QUIET_S. Raises
        StalledError as `until`."""
        await self.until(messages, stream)
        last, moved_at = -1, time.monotonic()
        while time.monotonic() - moved_at < QUIET_S:
            found = await self.messages(stream)
            if found != last or await self.messages(names.TASKS):
                last, moved_at = found, time.monotonic()
            await asyncio.sleep(LOOK_S)

    async def events(self, run_id: str) -> list[tuple[str, float]]:
        """Type and time of each event of a run, in order."""
        stored = await self._store.reader.subject(names.HISTORY, names.stored_subject(run_id))
        return [(_EVENT.decode(one.data).type, one.at) for one in stored]

    async def completed_at(self, run_ids: Sequence[str]) -> float:
        """When the last of these runs completed. Raises StalledError if one has not."""
        last = await self._store.reader.last(names.HISTORY, [names.stored_subject(run_id) for run_id in run_ids])
        found = [one.at for one in last if _EVENT.decode(one.data).type == COMPLETED]
        if len(found) != len(run_ids):
            raise StalledError(f"{len(run_ids) - len(found)} of {len(run_ids)} runs have not completed")
        return float(max(found))

    async def all_completed_at(self, run_ids: Sequence[str]) -> float:
        """As `completed_at`, for runs with timers, whose messages cannot be counted beforehand: asked again until all
        have completed."""
        begin = time.monotonic()
        while True:
            try:
                return await self.completed_at(run_ids)
            except StalledError:
                if time.monotonic() - begin > STALLED_S:
                    raise
            await asyncio.sleep(LOOK_S)

    async def moved_on_at(self, run_ids: Sequence[str], since: float) -> list[float]:
        """When each of these runs had its first event after `since` (s since the epoch), in ascending order; without
        those that had ended by then."""
        wanted = {names.stored_subject(run_id) for run_id in run_ids}
        moved = dict[str, float]()
        for stored in await self._store.reader.subject(names.HISTORY, "history.*.*"):
            if stored.at > since and stored.subject in wanted:
                moved.setdefault(stored.subject, stored.at)
        return sorted(moved.values())

    async def first_at(self, run_ids: Sequence[str], kind: str) -> dict[str, float]:
        """When the first event of this type of each of these runs was stored; when the first step of each began, where
        it is the type of starts. Raises StalledError if one has none."""
        wanted = {names.stored_subject(run_id): run_id for run_id in run_ids}
        found = dict[str, float]()
        for stored in await self._store.reader.subject(names.HISTORY, "history.*.*"):
            if stored.subject not in wanted:
                continue
            event = _EVENT.decode(stored.data)
            if event.type == kind:
                found.setdefault(wanted[stored.subject], stored.at)
            elif kind == STEP_STARTED and event.started_at is not None:
                found.setdefault(wanted[stored.subject], seconds_of(event.started_at))
        if len(found) != len(wanted):
            raise StalledError(f"{len(found)} of {len(wanted)} runs have an event of type {kind}")
        return found

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[Live]:
        """What is stored from now on, for the time of the block: the broker's copies, which cost it no consumer."""
        live = Live()
        client = self._store.broker.client
        subscription = await client.receive(names.watch_subject("*"), live.take)
        await self._store.broker.flush()
        try:
            yield live
        finally:
            await client.stop_receiving(subscription)


class Live:
    """Owned by `Log.followed`. It keeps what it has seen of a run until that is forgotten."""

    def __init__(self) -> None:
        self.events: defaultdict[str, list[Seen]] = defaultdict(list)
        self._completed: defaultdict[str, asyncio.Future[None]] = defaultdict(asyncio.get_running_loop().create_future)

    def take(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        run_id = subject[subject.rfind(b".") + 1 :].decode()
        event = _EVENT.decode(data)
        self.events[run_id].append(Seen(event.type, headers, event.started_at))
        if event.type == COMPLETED:
            self._completed[run_id].set_result(None)

    async def watch(self, run_id: str) -> str:
        """Return as soon as the run has completed; what was seen of it is in `events`. Raises StalledError."""
        try:
            async with asyncio.timeout(STALLED_S):
                await self._completed[run_id]
        except TimeoutError as error:
            raise StalledError(f"run {run_id} is not seen to complete") from error
        del self._completed[run_id]
        return "completed"
