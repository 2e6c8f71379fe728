"""Create and revoke API keys."""

from __future__ import annotations

import secrets
import time
from functools import partial

from msgspec import Struct

from penstock.broker.store import Store
from penstock.config.limits import API_KEY_BYTES
from penstock.engine.access.keys import StoredKey, added, digest_of, without
from penstock.engine.access.scopes import KeyScope

PREFIX = "penstock_"  # scanners for secrets in source code find it


class NewKey(Struct, frozen=True):
    """`key` is shown once; it cannot be computed from what is stored."""

    stored: StoredKey
    key: str


async def create(
    store: Store,
    name: str,
    scope: KeyScope,
    *,
    workflow: str | None = None,
    expires_s: float | None = None,
    by: str | None = None,
    has_token: bool = False,
) -> NewKey:
    """Create a key. `workflow` is a pattern, `expires_s` how long it is valid.

    Raises Conflict, also for a first key that could not manage others; Invalid, Unavailable (outcome unknown).
    """
    key, now = PREFIX + secrets.token_urlsafe(API_KEY_BYTES), time.time()
    stored = StoredKey(
        name, scope, digest_of(key.encode()), now, workflow, None if expires_s is None else now + expires_s, by
    )
    await store.api_keys.change(partial(added, new=stored, has_token=has_token))
    return NewKey(stored, key)


async def revoke(store: Store, name: str, *, has_token: bool = False) -> None:
    """Revoke a key; every process knows it within a second.

    Raises NotFound, Conflict for the last one that may manage keys, Unavailable (outcome unknown).
    """
    await store.api_keys.change(partial(without, name=name, now=time.time(), has_token=has_token))
