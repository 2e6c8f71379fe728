"""The API keys: one document, so that a change of them is checked against all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
from msgspec import Struct

from penstock.broker.nats.buckets import Bucket
from penstock.engine.access.keys import StoredKey
from penstock.engine.errors import Conflict, Unavailable

DOCUMENT = "keys"
TRIES_MAX = 10


class KeyList(Struct, frozen=True):
    """All keys, by name; `revision` is 0 as long as there has never been one."""

    keys: list[StoredKey]
    revision: int = 0


_DECODER = msgspec.json.Decoder(list[StoredKey])


class ApiKeys:
    """The bucket of API keys."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def read(self) -> KeyList:
        """Everything that was acknowledged; none before any version has made the bucket. Raises Unavailable."""
        try:
            entry, revision = await self._bucket.find(DOCUMENT)
        except Unavailable:
            if await self._bucket.exists():
                raise
            return KeyList([])
        return KeyList([] if entry is None else _DECODER.decode(entry.value), revision)

    async def change(self, changed: Callable[[list[StoredKey]], list[StoredKey]]) -> None:
        """Store what `changed` makes of the keys; it is called again when another change came between.

        Raises what `changed` raises, Conflict, Unavailable (outcome unknown).
        """
        for _ in range(TRIES_MAX):
            found = await self.read()
            try:
                await self._bucket.put(DOCUMENT, msgspec.json.encode(changed(found.keys)), found.revision)
                return
            except Conflict:
                if (await self.read()).revision == found.revision:
                    raise
        raise Conflict("the keys were changed by others meanwhile: try again")

    def notifying(self, changed: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Call `changed` at about the time of each change, for the time of the block. A notification may be lost."""
        return self._bucket.notifying(DOCUMENT, lambda _: changed())
