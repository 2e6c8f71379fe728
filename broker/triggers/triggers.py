"""The bucket of triggers. Each record also says what the trigger needs at the broker, so that any process can create or
remove it.

An enabled trigger has a generation. It gets a new one when it is created, enabled, or given another source. Consumers,
schedules and streams have it in their names, so those of an earlier generation are never mistaken for the current ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import Struct

from penstock.broker import record_keys
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.config.logging import get_logger
from penstock.engine import formats
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.trigger.trigger import Trigger


class Retired(Struct, frozen=True, omit_defaults=True):
    """A generation whose objects at the broker are still to be removed; `stream` is empty when it had none yet, and
    `batches` is true if it may have open batches."""

    generation: str
    stream: str = ""
    batches: bool = False


class StoredTrigger(Struct, frozen=True, omit_defaults=True):
    """`generation` is empty while the trigger is disabled. It consumes `stream` (empty: not chosen yet) after the
    sequence `after_seq`. `since` is when the generation began (RFC 3339): for cron, the instants after it. A `deleted`
    trigger only waits for the removal of its `retired`."""

    trigger: Trigger
    created_at: str
    since: str
    generation: str = ""
    stream: str = ""
    after_seq: int = 0
    retired: tuple[Retired, ...] = ()
    deleted: bool = False

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be chosen or removed."""
        return not (self.retired or self.deleted or (self.generation and not self.stream))

    @property
    def active(self) -> bool:
        return bool(self.generation and self.stream)

    @property
    def current(self) -> Retired:
        """What there is of its generation at the broker, as it is closed one day."""
        return Retired(self.generation, self.stream, self.trigger.batching is not None)


class TriggerEntry(Struct, frozen=True):
    """A name, and its trigger if there is one. `revision` is the one that the next write must expect."""

    name: str
    kept: StoredTrigger | None
    revision: int


class Progress(Struct, frozen=True):
    """The last instant (RFC 3339) that a generation has handled."""

    generation: str
    at: str


HTTP_FORMAT = 2
BATCHING_FORMAT = 3

_DECODER = msgspec.json.Decoder(StoredTrigger)
_PROGRESS = msgspec.json.Decoder(Progress)

log = get_logger()


class Triggers:
    """The bucket. Every write expects a revision, so concurrent changes of a trigger never overwrite each other."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def find(self, name: str) -> TriggerEntry:
        """The entry, also of a trigger that is deleted and not removed yet. Raises NeedsUpgrade for one that a newer
        version wrote."""
        entry, revision = await self._bucket.find(name)
        return TriggerEntry(name, None if entry is None else _decoded(entry), revision)

    async def all(self) -> list[StoredTrigger]:
        """By name, including those that are deleted and not removed yet; without those that need an upgrade to be
        read."""
        entries = await self._bucket.all()
        found = [_readable(entry) for entry in sorted(entries, key=lambda entry: entry.key) if "/" not in entry.key]
        return [kept for kept in found if kept is not None]

    async def write(self, found: TriggerEntry, kept: StoredTrigger) -> TriggerEntry:
        """Replace the entry that was found. Raises Conflict if it has changed since."""
        body = formats.stamped(msgspec.json.encode(kept), _format(kept.trigger))
        return TriggerEntry(found.name, kept, await self._bucket.put(found.name, body, found.revision))

    async def remove(self, found: TriggerEntry) -> None:
        """Remove the entry. Raises Conflict if it has changed since it was found."""
        await self._bucket.delete(found.name, found.revision)
        await self._bucket.purge(record_keys.progress_key(found.name))

    async def route(self, route: str) -> tuple[str | None, int]:
        """The name of the trigger that was last given this route, and the revision that the next write must expect."""
        entry, revision = await self._bucket.find(record_keys.route_key(route))
        return None if entry is None else entry.value.decode(errors="replace"), revision

    async def set_route(self, route: str, trigger: str, revision: int) -> None:
        """Give the route to a trigger. Raises Conflict if that has changed since it was read."""
        await self._bucket.put(record_keys.route_key(route), trigger.encode(), revision)

    async def remove_route(self, route: str, revision: int) -> None:
        """Take the route from the trigger that has it. Raises Conflict as `set_route`."""
        await self._bucket.delete(record_keys.route_key(route), revision)

    async def progress(self, name: str) -> Progress | None:
        entry = await self._bucket.get(record_keys.progress_key(name))
        try:
            return None if entry is None else _PROGRESS.decode(entry.value)
        except msgspec.MsgspecError:
            return None

    async def set_progress(self, name: str, progress: Progress) -> None:
        await self._bucket.put(record_keys.progress_key(name), msgspec.json.encode(progress))

    def notifying(self, callback: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `callback` when a trigger is written, for the time of the block. A notification may be lost."""
        return self._bucket.notifying(">", lambda key: None if "/" in key else callback())


def _format(trigger: Trigger) -> int:
    """Older versions know no trigger of some kinds, and would start a run for each event of a batch."""
    if trigger.batching is not None:
        return BATCHING_FORMAT
    return HTTP_FORMAT if trigger.http is not None else 1


def _decoded(entry: Entry) -> StoredTrigger | None:
    """The stored trigger; None for a malformed one that another program has written."""
    try:
        formats.check(entry.value)
        return _DECODER.decode(entry.value)
    except msgspec.MsgspecError as error:
        log.error("trigger_unreadable", key=entry.key, error=str(error))
        return None


def _readable(entry: Entry) -> StoredTrigger | None:
    try:
        return _decoded(entry)
    except NeedsUpgrade as error:
        log.warning("trigger_left_out", key=entry.key, reason=str(error))
        return None
