"""The API keys in the memory of one front-end process, so that no request asks the broker for them.

A change is read as soon as the broker announces it, and at the latest after KEYS_POLL_S, since an announcement may be
lost. As long as the keys cannot be read, those that are known stay valid until they expire; of any other one it is not
known whether it is valid, and nobody is let in without one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hmac import compare_digest
from typing import NoReturn

from penstock.broker.records.api_keys import ApiKeys
from penstock.broker.store import Store
from penstock.config.limits import KEYS_KNOWN_S, KEYS_POLL_S
from penstock.config.logging import get_logger
from penstock.config.process.background import restarting
from penstock.engine.access.keys import StoredKey, digest_of
from penstock.engine.errors import PenstockError

log = get_logger()


class KeyRing:
    """Owned by the application. `closed`: there is a key, also an expired one, so that everybody needs one."""

    def __init__(self) -> None:
        self.closed = False
        self._by_digest: Mapping[str, StoredKey] = {}
        self._by_name: Mapping[str, StoredKey] = {}
        self._read_at: float | None = None  # monotonic
        self._failing = False

    @property
    def current(self) -> bool:
        """Whether the keys were read lately: if not, there may be others, and some may have been revoked."""
        return self._read_at is not None and time.monotonic() - self._read_at < KEYS_KNOWN_S

    def find(self, key: bytes) -> StoredKey | None:
        """The stored key that this is, if it is valid now.

        How long the look-up takes depends on the digest of what was sent. Nobody can compute a key from that.
        """
        digest = digest_of(key)
        found = self._by_digest.get(digest)
        if found is None or not compare_digest(found.digest, digest) or not found.valid(time.time()):
            return None
        return found

    def named(self, name: str) -> StoredKey | None:
        """The key of this name, if it is valid now."""
        found = self._by_name.get(name)
        return found if found is not None and found.valid(time.time()) else None

    @asynccontextmanager
    async def following(self, store: Store) -> AsyncIterator[None]:
        """Keep up with the stored keys for the time of the block, which begins when they are known."""
        await self.read(store.api_keys)

        async def follow() -> NoReturn:
            changed = asyncio.Event()
            async with store.api_keys.notifying(changed.set):
                while True:
                    await self._try_to_read(store.api_keys)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(KEYS_POLL_S):
                            await changed.wait()
                    changed.clear()

        async with restarting(follow, name="api_keys", again_s=KEYS_POLL_S):
            yield

    async def read(self, keys: ApiKeys) -> None:
        """Read the keys now. Raises Unavailable."""
        began_at = time.monotonic()
        found = (await keys.read()).keys
        self._by_digest = {one.digest: one for one in found}
        self._by_name = {one.name: one for one in found}
        self.closed, self._read_at, self._failing = bool(found), began_at, False

    async def _try_to_read(self, keys: ApiKeys) -> None:
        try:
            await self.read(keys)
        except PenstockError as error:
            if not self._failing:
                log.warning("api_keys_unread", error=str(error))
            self._failing = True
