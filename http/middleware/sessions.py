"""Sign-ins of people with a browser: a random cookie stands for a key, until it ends, or the key does.

Only the SHA-256 of a cookie is stored, and a proof that the key was shown, which nobody can check without the cookie.
A process asks the broker about a session again after SESSION_CHECK_S, so that a sign-out is known everywhere soon.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest, digest
from typing import NamedTuple

import msgspec
from falcon.asgi import Request
from msgspec import Struct

from penstock.broker.store import Store
from penstock.config.limits import SESSION_CHECK_S, SESSION_S

COOKIE, SECURE_COOKIE = "penstock_session", "__Host-penstock_session"
CSRF_HEADER = "X-CSRF-Token"
COOKIES_MAX = 3  # of one name, which other pages of the host may have set, too
REMEMBERED_MAX = 10_000


class StoredSession(Struct, frozen=True):
    """`name` is that of the key, `proof` what only its holder could compute; `expires_at` in s since the epoch."""

    name: str
    proof: str
    expires_at: float


class _Seen(NamedTuple):
    session: StoredSession | None
    at: float


_DECODER = msgspec.json.Decoder(StoredSession)


class Sessions:
    """Owned by the application."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._seen: dict[str, _Seen] = {}

    async def begin(self, name: str, key_digest: str, key_expires_at: float | None) -> tuple[str, float]:
        """Store a new session for the key of this name and digest. Returns the cookie's value, and when the session
        ends. Raises Unavailable."""
        cookie, ends_at = secrets.token_urlsafe(32), time.time() + SESSION_S
        if key_expires_at is not None:
            ends_at = min(ends_at, key_expires_at)
        session = StoredSession(name, proof(cookie, key_digest), ends_at)
        await self._store().sessions.put(_id(cookie), msgspec.json.encode(session), 0)
        return cookie, ends_at

    async def find(self, cookie: str) -> StoredSession | None:
        """The session of a cookie, unless it has ended. Raises Unavailable."""
        session_id, now = _id(cookie), time.monotonic()
        seen = self._seen.get(session_id)
        if seen is None or now - seen.at >= SESSION_CHECK_S:
            entry = await self._store().sessions.get(session_id)
            seen = _Seen(None if entry is None else _DECODER.decode(entry.value), now)
            if len(self._seen) >= REMEMBERED_MAX:
                self._seen.clear()
            if seen.session is not None:
                self._seen[session_id] = seen
            else:
                self._seen.pop(session_id, None)
        return seen.session if seen.session is not None and time.time() < seen.session.expires_at else None

    async def end(self, cookie: str) -> None:
        """End the session of a cookie, for every process. Raises Unavailable."""
        await self._store().sessions.delete(_id(cookie))
        self._seen.pop(_id(cookie), None)


def cookies_of(req: Request) -> list[str]:
    """The cookies of a request that may be a session's."""
    found = [*(req.get_cookie_values(SECURE_COOKIE) or ()), *(req.get_cookie_values(COOKIE) or ())]
    return found[:COOKIES_MAX]


def proof(cookie: str, key_digest: str) -> str:
    """What shows that a session was begun with a key."""
    return digest(cookie.encode(), b"key " + key_digest.encode(), sha256).hex()


def csrf_token(cookie: str) -> str:
    """What a page of the service sends with each change: no other page can read it."""
    return digest(cookie.encode(), b"csrf", sha256).hex()


def has_csrf_token(req: Request, cookie: str) -> bool:
    """Whether the request has the token that belongs to its cookie."""
    given = req.get_header(CSRF_HEADER) or ""
    return compare_digest(given.encode("latin-1"), csrf_token(cookie).encode())


def _id(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()
