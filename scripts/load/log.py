"""The broker's log, as the benchmarks look at it: beside the service, over a connection of their own.

Nothing is sent to anyone while a bulk of runs is under way: the number of stored messages tells when it is over (asked for
every LOOK_S), and the log itself, read afterwards, tells when each run had ended. Only what measures single runs follows it live.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.pull import Delivery
from penstock.broker.store import Store

LOOK_S = 0.02
STALLED_S = 30.0
COMPLETED = "workflow.completed"
FORGOTTEN_S = 10


class _Event(Struct, frozen=True):
    type: str


_EVENT = msgspec.json.Decoder(_Event)


class Seen(NamedTuple):
    """An event: its type, and the broker's time of storing it, in s since the epoch."""

    type: str
    at: float


class StalledError(Exception):
    """Nothing was stored any more, and not every run had ended."""


class Log:
    """Owned by a stage, as long as its store is open."""

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

    async def completed_at(self, run_ids: Sequence[str]) -> float:
        """When the last of these runs completed. Raises StalledError if one has not."""
        last = await self._store.reader.last(names.HISTORY, [names.stored_subject(run_id) for run_id in run_ids])
        found = [one.at for one in last if _EVENT.decode(one.data).type == COMPLETED]
        if len(found) != len(run_ids):
            raise StalledError(f"{len(run_ids) - len(found)} of {len(run_ids)} runs have not completed")
        return float(max(found))

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[Live]:
        """What is stored from now on, for the time of the block."""
        live = Live(self._store)
        inbox = self._store.broker.new_inbox()
        subscription = await self._store.broker.subscribe(inbox, live.take)
        answer = await self._store.broker.api(f"CONSUMER.CREATE.{names.HISTORY}", _consumer(inbox))
        try:
            yield live
        finally:
            await self._store.broker.api(f"CONSUMER.DELETE.{names.HISTORY}.{answer['name']}")
            await subscription.unsubscribe()


class Live:
    """Owned by `Log.followed`. It keeps what it has seen of a run until that is forgotten."""

    def __init__(self, store: Store) -> None:
        self._broker = store.broker
        self.events: defaultdict[str, list[Seen]] = defaultdict(list)
        self._completed: defaultdict[str, asyncio.Future[None]] = defaultdict(asyncio.get_running_loop().create_future)

    async def take(self, msg: Msg) -> None:
        run_id = msg.subject[msg.subject.rfind(".") + 1 :]
        kind = _EVENT.decode(msg.data).type
        self.events[run_id].append(Seen(kind, Delivery(self._broker, msg.subject, msg.reply, msg.data).at))
        if kind == COMPLETED:
            self._completed[run_id].set_result(None)

    async def watch(self, run_id: str) -> str:
        """Return as soon as the run has completed; what was seen of it is in `events`."""
        await self._completed[run_id]
        del self._completed[run_id]
        return "completed"


def _consumer(inbox: str) -> dict[str, Any]:
    config = {
        "deliver_subject": inbox,
        "filter_subject": "history.*.*",
        "deliver_policy": "new",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": FORGOTTEN_S * 10**9,
    }
    return {"stream_name": names.HISTORY, "config": config}
