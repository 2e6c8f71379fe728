"""Stores what workers over HTTP say of the tasks that this process has assigned."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import assert_never
from uuid import uuid4

import msgspec

from penstock.broker import message_ids
from penstock.broker.live import chunks, lines
from penstock.broker.live.allowance import Allowance
from penstock.broker.live.said import SaidStream
from penstock.broker.records.leases import Lease
from penstock.broker.store import Store
from penstock.config.limits import ENTRIES_MAX, KIB, SAID_MESSAGE_BYTES_MAX
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.times import rfc3339
from penstock.http.bridge.live.live_requests import LiveAction, LogAction, ProgressAction, StreamAction

STORED_S_MAX = 5.0
LIVE_TASKS_MAX = 10_000  # whose amounts a process knows; a task beyond them begins anew
MESSAGE_BYTES_MAX = SAID_MESSAGE_BYTES_MAX - 4 * KIB  # beside the entries: attempt and worker


class _Admission:
    """What one task may say of one kind, and how many of its entries were dropped."""

    __slots__ = ("allowance", "dropped", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease, self.allowance, self.dropped = lease, Allowance(time.monotonic()), 0

    def admitted(self, entries: Sequence[bytes]) -> list[bytes]:
        now = time.monotonic()
        found = [entry for entry in entries if self.allowance.take(len(entry), now)]
        self.dropped += len(entries) - len(found)
        return found

    def take_dropped(self) -> int:
        dropped, self.dropped = self.dropped, 0
        return dropped

    @contextmanager
    def owing(self, dropped: int) -> Iterator[None]:
        """The block stores that so many entries of earlier requests were dropped. When it fails, they are to be
        mentioned again; those of its own request are dropped, or not, when that is repeated."""
        try:
            yield
        except BaseException:
            self.dropped += dropped
            raise


class LiveReports:
    """Owned by the bridge. A task's flood is cut here, by the process that has assigned it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._admissions: OrderedDict[tuple[str, str], _Admission] = OrderedDict()  # the latest used last

    async def store(self, lease: Lease, action: LiveAction) -> None:
        """Return when it is stored, or dropped. Raises Full, Unavailable."""
        match action:
            case LogAction(found, name):
                await self._store_lines(lease, self._admission(lease, "log"), found, name)
            case StreamAction(chunk, dropped, name):
                admission, found = self._admission(lease, "stream"), [] if chunk is None else [chunk]
                await self._store_chunks(lease, admission, found, name, dropped)
            case ProgressAction(progress):
                said = msgspec.structs.replace(progress, attempt=lease.attempt)
                await self._store.progress.say(lease.run_id, lease.step_id, said)
            case _:
                assert_never(action)

    async def end(self, task_id: str) -> None:
        """The task is about to be answered: say what was dropped of it last. Costs nothing for a task that said
        nothing."""
        if not self._admissions:
            return
        for kind, store in (("log", self._store_lines), ("stream", self._store_chunks)):
            admission = self._admissions.get((task_id, kind))
            if admission is not None and admission.dropped:
                with suppress(PenstockError):  # the answer matters more; when it fails, too, it comes again
                    await store(admission.lease, admission, [], None)
            if admission is not None and not admission.dropped:
                self._admissions.pop((task_id, kind), None)

    def _admission(self, lease: Lease, kind: str) -> _Admission:
        key = lease.task_id, kind
        found = self._admissions.get(key)
        if found is None or found.lease.reply != lease.reply:
            found = self._admissions[key] = _Admission(lease)
        self._admissions.move_to_end(key)
        if len(self._admissions) > LIVE_TASKS_MAX:
            self._admissions.popitem(last=False)
        return found

    async def _store_lines(self, lease: Lease, admission: _Admission, found: Sequence[bytes], name: str | None) -> None:
        before, admitted = admission.dropped, admission.admitted(found)
        if admitted or not found:
            dropped = admission.take_dropped()
            notice = [lines.dropped(dropped, rfc3339(time.time()))] if dropped else []
            with admission.owing(before):
                for number, part in enumerate(_messages([*notice, *admitted])):
                    body = lines.batch(part, lease.attempt, lease.worker_id or None, delivery=lease.deliveries)
                    await self._stored(self._store.logs, lease, body, name and f"{name}.{number}")

    async def _store_chunks(
        self, lease: Lease, admission: _Admission, found: Sequence[bytes], name: str | None, missing: int = 0
    ) -> None:
        before, admitted = admission.dropped, admission.admitted(found)
        admission.dropped += missing
        if admitted or not found:
            worker_id, dropped = lease.worker_id or None, admission.take_dropped()
            body = chunks.batch(admitted, lease.attempt, worker_id, dropped, delivery=lease.deliveries)
            with admission.owing(before):
                await self._stored(self._store.chunks, lease, body, name)

    async def _stored(self, said: SaidStream, lease: Lease, body: bytes, name: str | None) -> None:
        message_id = message_ids.of_said(lease.task_id, said.name, f"{lease.attempt}.{name or uuid4().hex}")
        sent = said.send(lease.run_id, lease.step_id, body, message_id)
        try:
            async with asyncio.timeout(STORED_S_MAX):
                await sent
        except TimeoutError as error:
            raise Unavailable("the broker gave no answer in time; whether it was stored is unknown") from error


def _messages(entries: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The entries, as many at a time as fit into a message."""
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if part and (size + len(entry) > MESSAGE_BYTES_MAX or len(part) == ENTRIES_MAX):
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry) + 1
    if part:
        yield part
