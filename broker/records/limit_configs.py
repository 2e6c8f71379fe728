"""What definitions and people say of limits: one document for each kind and scope."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

import msgspec

from penstock.broker import record_keys
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.config.logging import get_logger
from penstock.engine.errors import Conflict
from penstock.engine.limits.configs import LimitConfig, LimitOverride, RegisteredLimit, decode, encode
from penstock.engine.limits.names import LimitKind

TRIES_MAX = 20

log = get_logger()

Place = tuple[LimitKind, str]
"""Kind and scope."""


class LimitConfigs:
    """The bucket `limits`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def get_many(self, places: Collection[Place]) -> dict[Place, LimitConfig]:
        """Those that exist. Raises Unavailable."""
        if not places:
            return {}
        found = await self._bucket.get_many([record_keys.limit_key(kind, scope) for kind, scope in places])
        return _by_place(found.values())

    async def of_scope(self, scope: str) -> dict[Place, LimitConfig]:
        """Of each kind, those that exist."""
        return await self.get_many([(kind, scope) for kind in LimitKind])

    async def all(self) -> dict[Place, LimitConfig]:
        """Every one. Raises Unavailable."""
        return _by_place(await self._bucket.all())

    async def since(self, revision: int) -> tuple[dict[Place, LimitConfig | None], int]:
        """What was changed after this revision of the bucket (0: all), None for what is there no more, and the newest
        revision."""
        changed, newest = await self._bucket.since(revision)
        found: dict[Place, LimitConfig | None] = {}
        for key, entry in changed.items():
            kind, scope = record_keys.limit_of(key)
            if kind in set(LimitKind):
                found[LimitKind(kind), scope] = None if entry is None else _decoded(entry)
        return found, newest

    def notifying(self, changed: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `changed` at about the time of each change, for the time of the block. A notification may be lost."""
        return self._bucket.notifying(">", lambda _: changed())

    async def register(self, place: Place, new: RegisteredLimit) -> None:
        """Let it count from now on. Nothing is written where it counts already. Raises Unavailable (repeat it)."""
        await self._change(place, lambda config: config.with_registered(new))

    async def forget(self, place: Place, workflow: str) -> None:
        """The workflow names the limit no more. Raises Unavailable (repeat it)."""
        await self._change(place, lambda config: config.without(workflow))

    async def override(self, place: Place, key: str | None, override: LimitOverride) -> None:
        """Let it count instead of what is registered, for one key or for all (None). Raises Conflict for too many keys,
        Unavailable (repeat it)."""
        await self._change(place, lambda config: config.with_override(key, override))

    async def take_back(self, place: Place, key: str | None) -> bool:
        """Let what is registered count again; False if there was no override. Raises Unavailable (repeat it)."""
        return await self._change(place, lambda config: config.without_override(key))

    async def _change(self, place: Place, change: Callable[[LimitConfig], LimitConfig]) -> bool:
        """Change one document, or make or remove it; `change` is called again when another change came between."""
        key = record_keys.limit_key(*place)
        for _ in range(TRIES_MAX):
            entry, revision = await self._bucket.find(key)
            found = (None if entry is None else _decoded(entry)) or LimitConfig(*place)
            changed = change(found)
            if changed is found:
                return False
            try:
                if changed.empty:
                    await self._bucket.delete(key, revision)
                else:
                    await self._bucket.put(key, encode(changed), revision)
            except Conflict:
                continue
            return True
        raise Conflict(f"the limits of {place[1]} were changed by others meanwhile: try again")


def _by_place(entries: Collection[Entry]) -> dict[Place, LimitConfig]:
    found = (_decoded(entry) for entry in entries)
    return {(one.kind, one.scope): one for one in found if one is not None}


def _decoded(entry: Entry) -> LimitConfig | None:
    """What somebody else has written there is as good as nothing."""
    try:
        return decode(entry.value)
    except msgspec.MsgspecError as error:
        log.error("limit_config_unreadable", key=entry.key, error=str(error))
        return None
