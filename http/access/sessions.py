"""/session: sign in with a key, see who one is, sign out."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.client.access.views import SessionView, SignedOut
from penstock.config.limits import KIB, SESSION_S
from penstock.engine.access.scopes import Caller
from penstock.engine.errors import Conflict
from penstock.engine.times import rfc3339
from penstock.http.messages import bodies, responses
from penstock.http.messages.callers import caller_of
from penstock.http.middleware.credentials import Credentials
from penstock.http.middleware.sessions import COOKIE, SECURE_COOKIE, csrf_token

BODY_BYTES_MAX = 16 * KIB


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """`key` is an API key, or SERVICE_API_TOKEN."""

    key: str


class SessionResource:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def on_post(self, req: Request, resp: Response) -> None:
        """Sign in with a key; the answer sets a cookie that stands for it."""
        if not self._credentials.needed:
            raise Conflict("no key is needed: the service has neither a key nor SERVICE_API_TOKEN")
        body = await bodies.read(req, BODY_BYTES_MAX)
        shown = self._credentials.shown(req, bodies.decode(body, SignIn).key if body else None)
        sessions, name = self._credentials.sessions, shown.caller.name
        assert name is not None
        cookie, ends_at = await sessions.begin(name, shown.digest, shown.expires_at)
        _set_cookie(req, resp, cookie)
        responses.created(resp, _view(shown.caller, cookie, ends_at))

    async def on_get(self, req: Request, resp: Response) -> None:
        """Who one is, and what one may do."""
        responses.ok(resp, _view(caller_of(req), self._credentials.cookie_of(req)))

    async def on_delete(self, req: Request, resp: Response) -> None:
        """Sign out: the cookie is of no use any more."""
        cookie = self._credentials.cookie_of(req)
        if cookie is not None:
            await self._credentials.sessions.end(cookie)
            for name in (COOKIE, SECURE_COOKIE):
                resp.unset_cookie(name, path="/", same_site="Strict")
        responses.ok(resp, SignedOut())


def _view(caller: Caller, cookie: str | None, ends_at: float | None = None) -> SessionView:
    return SessionView(
        caller.scope,
        caller.name,
        caller.workflows,
        None if cookie is None else csrf_token(cookie),
        None if ends_at is None else rfc3339(ends_at),
    )


def _set_cookie(req: Request, resp: Response, cookie: str) -> None:
    secure = _is_https(req)
    resp.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        cookie,
        max_age=int(SESSION_S),
        path="/",
        secure=secure,
        http_only=True,
        same_site="Strict",
    )


def _is_https(req: Request) -> bool:
    """Whether the browser speaks TLS, perhaps with a proxy. A client that pretends only gets a cookie that it will not
    send without TLS."""
    return (
        req.scheme == "https"
        or (req.get_header("X-Forwarded-Proto") or "").lower() == "https"
        or (req.get_header("Origin") or "").startswith("https://")
    )
