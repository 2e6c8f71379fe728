"""What a request shows, and who it therefore comes from: a key, a session that was begun
with one (sessions.py), or one of the two tokens of the settings.

As long as the service has neither a key nor SERVICE_API_TOKEN, the control plane is open: to this machine
(protection.py), or to everybody if the settings say so.
"""

from __future__ import annotations

from hmac import compare_digest

from falcon.asgi import Request
from msgspec import Struct

from penstock.config.settings import HttpSettings
from penstock.engine.access.keys import API_TOKEN_NAME, BRIDGE_TOKEN_NAME, digest_of
from penstock.engine.access.scopes import EVERYBODY, Caller, KeyScope
from penstock.engine.errors import Denied, Forbidden, PenstockError, Unavailable
from penstock.http.middleware.key_ring import KeyRing
from penstock.http.middleware.protection import check_near
from penstock.http.middleware.sessions import CSRF_HEADER, Sessions, cookies_of, has_csrf_token, proof

NEEDED = "a valid bearer token is needed"
UNKNOWN = "the keys cannot be read now, so whether this one is valid is not known"
WITHOUT_BROKER = "/metrics"  # answered also while the broker is away, and shows no run

READING = frozenset({"GET", "HEAD", "OPTIONS"})

BY_API_TOKEN = Caller(API_TOKEN_NAME)
BY_BRIDGE_TOKEN = Caller(BRIDGE_TOKEN_NAME, KeyScope.OPERATE)


class Shown(Struct, frozen=True):
    """A valid key: who has it, what is stored of it, and when it expires (s since the epoch)."""

    caller: Caller
    digest: str
    expires_at: float | None = None


class Credentials:
    """Owned by the application."""

    def __init__(self, keys: KeyRing, sessions: Sessions, settings: HttpSettings) -> None:
        self.keys, self.sessions = keys, sessions
        self._insecure = settings.insecure
        self._api_token, self._bridge_token = _bytes(settings.api_token), _bytes(settings.bridge_token)

    @property
    def has_token(self) -> bool:
        """Whether SERVICE_API_TOKEN is an admin key besides those that are stored."""
        return self._api_token is not None

    @property
    def has_bridge_token(self) -> bool:
        return self._bridge_token is not None

    @property
    def needed(self) -> bool:
        """Whether the control plane needs a key or the token."""
        return self.has_token or self.keys.closed

    async def of_control_plane(self, req: Request) -> Caller:
        """Raises Denied for what is not valid, Forbidden for a client on another machine while the service is open to
        its own machine alone, Unavailable while it is not known whether a key is valid, or needed."""
        if not self.needed:
            return self._without(req)
        given = _bearer(req)
        if given is None and (cookies := cookies_of(req)):
            return await self._by_session(req, cookies)
        return self._by_token_or_key(given)

    def shown(self, req: Request, key: str | None) -> Shown:
        """What is known of a key, or else of the one that the request bears. Raises as `of_control_plane`."""
        given = _bearer(req) if key is None else key.encode("utf-8", "replace")
        caller = self._by_token_or_key(given)
        assert given is not None
        stored = None if caller is BY_API_TOKEN else self.keys.find(given)
        return Shown(caller, digest_of(given), None if stored is None else stored.expires_at)

    def cookie_of(self, req: Request) -> str | None:
        """The cookie by which the request was let in; None if it came otherwise."""
        found: str | None = getattr(req.context, "cookie", None)
        return found

    def ends(self, caller: Caller) -> bool:
        """Whether the caller's credentials may become invalid while the process runs: a token of the settings does not,
        but a session with it does, and so does the lack of any key."""
        return caller is not BY_BRIDGE_TOKEN

    async def still_valid(self, req: Request, caller: Caller) -> bool:
        """Whether a request that was let in would be let in again, by the same key; not if that cannot be found out."""
        if caller is EVERYBODY:
            return not self.needed
        cookie = self.cookie_of(req)
        try:
            now = self._by_token_or_key(_bearer(req)) if cookie is None else await self._by_session(req, [cookie])
        except PenstockError:
            return False
        return now == caller

    async def _by_session(self, req: Request, cookies: list[str]) -> Caller:
        """Raises Denied without a session, Forbidden for a change that another page may have sent, Unavailable."""
        for cookie in cookies:
            session = await self.sessions.find(cookie)
            found = None if session is None else self._named(session.name)
            if session is None or found is None or not compare_digest(proof(cookie, found.digest), session.proof):
                continue
            if req.method not in READING and not has_csrf_token(req, cookie):
                raise Forbidden(f"a change with a cookie needs the header {CSRF_HEADER}, as GET /session gives it")
            req.context.cookie = cookie
            return found.caller
        raise Denied("the session has ended: sign in again")

    def _named(self, name: str) -> Shown | None:
        """The valid key of this name."""
        if name == API_TOKEN_NAME:
            return None if self._api_token is None else Shown(BY_API_TOKEN, digest_of(self._api_token))
        stored = self.keys.named(name)
        return None if stored is None else Shown(stored.caller, stored.digest)

    def of_trigger(self, req: Request) -> Caller:
        """Who calls an http trigger that needs a token. Raises as `of_control_plane`."""
        if not self.needed and not self.keys.current:
            raise Unavailable(UNKNOWN)
        return self._by_token_or_key(_bearer(req))

    def of_worker(self, req: Request) -> Caller:
        """Who uses the bridge: SERVICE_API_TOKEN does not open it, a key does. Raises as `of_control_plane`."""
        given = _bearer(req)
        if self._bridge_token is not None and given is not None and compare_digest(given, self._bridge_token):
            return BY_BRIDGE_TOKEN
        if self._bridge_token is None and not self.keys.closed and self.keys.current:
            raise Denied("the worker bridge is closed: the service has no SERVICE_BRIDGE_TOKEN, and no key")
        return self._by_key(given)

    def _by_token_or_key(self, given: bytes | None) -> Caller:
        if self._api_token is not None and given is not None and compare_digest(given, self._api_token):
            return BY_API_TOKEN
        return self._by_key(given)

    def _by_key(self, given: bytes | None) -> Caller:
        if given is None:
            raise Denied(NEEDED)
        found = self.keys.find(given)
        if found is not None:
            return found.caller
        if not self.keys.current:
            raise Unavailable(UNKNOWN)
        raise Denied(NEEDED)

    def _without(self, req: Request) -> Caller:
        if not self.keys.current and req.path != WITHOUT_BROKER and _bearer(req) is not None:
            raise Unavailable(UNKNOWN)
        if not self._insecure:
            check_near(req)
        if not self.keys.current and req.path != WITHOUT_BROKER:
            raise Unavailable("the keys cannot be read now, so whether one is needed is not known")
        return EVERYBODY


def _bearer(req: Request) -> bytes | None:
    """The bearer token of a request; None without one."""
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    # The header's bytes as they came: they are latin-1 to the framework.
    return token.strip().encode("latin-1") if scheme.lower() == "bearer" else None


def _bytes(token: str | None) -> bytes | None:
    return None if token is None else token.encode()
