"""How much each limit allows now: what is registered and overridden, in memory, and read again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from penstock.broker.records.limit_configs import LimitConfigs, Place
from penstock.config.logging import get_logger
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import PenstockError
from penstock.engine.limits.configs import LimitConfig, allowed_now
from penstock.engine.limits.records import Allowed
from penstock.engine.limits.state import LimitState

AGAIN_S = 0.5
LATER_S = (0.05, 0.5, 2.0)  # after a notification, which may come before the change can be read
LOOK_S = 10.0  # a notification may also be lost

log = get_logger()


class Allowances:
    """Owned by the limits of a shard. `changed` is called with the kinds and scopes that have changed."""

    def __init__(self, stored: LimitConfigs, changed: Callable[[Collection[Place]], None]) -> None:
        self._stored, self._changed = stored, changed
        self._configs: dict[Place, LimitConfig] = {}
        self._revision = 0
        self._due = asyncio.Event()

    def now(self, state: LimitState) -> Allowed:
        """What counts for the limit: where nothing is registered, what its last request says."""
        assert state.name is not None
        assert state.allowed is not None, "who asked has said for how much"
        return allowed_now(self._configs, state.name, state.allowed)

    async def read(self) -> None:
        """Read all of it. Where it cannot be read, what is known counts on."""
        self._revision = 0
        await self._read()

    async def run(self) -> None:
        """Read what changes, for ever. Nothing is read before there is something, or a notification."""
        async with self._stored.notifying(self._due.set):
            later: Sequence[float] = ()
            while True:
                await self._until_due(later[0] if later else LOOK_S if self._revision else None)
                later = LATER_S if self._due.is_set() else later[1:]
                self._due.clear()
                if not await self._read():
                    later = (AGAIN_S, *LATER_S)

    async def _until_due(self, at_most_s: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._due.wait()

    async def _read(self) -> bool:
        try:
            found, self._revision = await self._stored.since(self._revision)
        except PenstockError as error:
            log_rate_limited(log, "limits_not_read", error=str(error))
            return False
        changed = {place for place, config in found.items() if self._configs.get(place) != config}
        for place in changed:
            config = found[place]
            if config is None:
                self._configs.pop(place, None)
            else:
                self._configs[place] = config
        if changed:
            self._changed(changed)
        return True
