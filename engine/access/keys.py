"""API keys as they are stored, and which changes of them are allowed.

Only the SHA-256 of a key is stored. A key is 256 random bits, so a slow hash would protect nothing more (ADR 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

from penstock.config.limits import API_KEYS_MAX
from penstock.engine.access.scopes import Caller, KeyScope
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, Invalid, NotFound

API_TOKEN_NAME = "SERVICE_API_TOKEN"  # noqa: S105 - a name
BRIDGE_TOKEN_NAME = "SERVICE_BRIDGE_TOKEN"  # noqa: S105 - a name
RESERVED = frozenset({API_TOKEN_NAME, BRIDGE_TOKEN_NAME})


class StoredKey(Struct, frozen=True, omit_defaults=True):
    """`digest` is the SHA-256 of the key, in hex. Times are in s since the epoch; `expires_at` None is never.
    `workflow` is the pattern of the workflows that it is for, None for all. `by` is who created it."""

    name: str
    scope: KeyScope
    digest: str
    created_at: float
    workflow: str | None = None
    expires_at: float | None = None
    by: str | None = None

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at

    @property
    def caller(self) -> Caller:
        return Caller(self.name, self.scope, self.workflow)

    @property
    def administers(self) -> bool:
        """Whether it may manage keys, as long as it is valid."""
        return self.scope is KeyScope.ADMIN and self.workflow is None


def digest_of(key: bytes) -> str:
    """What is stored of a key."""
    return sha256(key).hexdigest()


def added(keys: Sequence[StoredKey], new: StoredKey, *, has_token: bool) -> list[StoredKey]:
    """The keys with a new one, by name. `has_token`: SERVICE_API_TOKEN is an admin key besides.

    Raises Invalid for a reserved name, Conflict for a name that is taken, for too many, and for a first key that could
    not manage others.
    """
    if new.name in RESERVED:
        raise Invalid(f"name {quoted(new.name)} is reserved")
    if any(one.name == new.name for one in keys):
        raise Conflict(f"the key {quoted(new.name)} exists: revoke it first, or choose another name")
    if len(keys) >= API_KEYS_MAX:
        raise Conflict(f"there are {len(keys)} keys, {API_KEYS_MAX} is the most")
    if not keys and not has_token and not new.administers:
        raise Conflict("the first key must have scope admin, for all workflows: from then on, a key is needed")
    return sorted([*keys, new], key=lambda one: one.name)


def without(keys: Sequence[StoredKey], name: str, now: float, *, has_token: bool) -> list[StoredKey]:
    """The keys without one. Raises NotFound, and Conflict for the last one that may manage keys: nobody could any
    more, and without any key the API would be open."""
    left = [one for one in keys if one.name != name]
    if len(left) == len(keys):
        raise NotFound(f"the key {quoted(name)} does not exist")
    if not has_token and not any(one.administers and one.valid(now) for one in left):
        raise Conflict(
            f"the key {quoted(name)} is the last one that may manage keys: create another one of scope admin first, "
            f"or set {API_TOKEN_NAME}"
        )
    return left
