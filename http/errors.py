"""Which HTTP status an error is: here and nowhere else. The answer is plain text, one problem a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from falcon import HTTPError, HTTPMethodNotAllowed, HTTPRouteNotFound
from falcon.asgi import App, Request, Response, WebSocket
from msgspec import Struct

from penstock.config.logging import get_logger
from penstock.engine.errors import (
    Conflict,
    Denied,
    Forbidden,
    Full,
    Invalid,
    NeedsUpgrade,
    NotFound,
    PenstockError,
    PublishFailed,
    TooLarge,
    Unavailable,
)
from penstock.engine.identifiers import quoted

STATUSES: Mapping[type[PenstockError], HTTPStatus] = {
    Invalid: HTTPStatus.BAD_REQUEST,
    Denied: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Full: HTTPStatus.SERVICE_UNAVAILABLE,
    NeedsUpgrade: HTTPStatus.SERVICE_UNAVAILABLE,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    PublishFailed: HTTPStatus.INTERNAL_SERVER_ERROR,
}
HEADERS: Mapping[int, Mapping[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}

log = get_logger()


@contextmanager
def publishing() -> Iterator[None]:
    """Where the specification wants 500 when the broker does not take what is written. Spec: Runs, cancel and signal."""
    try:
        yield
    except Unavailable as error:
        raise PublishFailed(str(error)) from error


class Refusal(Struct, frozen=True):
    status: int
    text: str
    headers: Mapping[str, str] = {}


def register(app: App[Request, Response]) -> None:
    """Have every exception of the application answered here; HTTPError is named because the framework has a handler of its own."""
    app.add_error_handler((Exception, HTTPError), _answer)


async def _answer(req: Request, resp: Response | None, error: Exception, params: dict[str, Any], ws: WebSocket | None = None) -> None:
    refusal = _refusal(req, error)
    if resp is None:
        assert ws is not None
        await ws.close()
        return
    resp.status = refusal.status
    resp.content_type = "text/plain; charset=utf-8"
    resp.text = refusal.text + "\n"
    resp.set_headers(dict(refusal.headers))


def _refusal(req: Request, error: Exception) -> Refusal:
    match error:
        case PenstockError() if status := _status(error):
            return Refusal(status, str(error), HEADERS.get(status, {}))
        case HTTPMethodNotAllowed(headers=headers):
            allowed = dict(headers or {})
            return Refusal(error.status_code, f"the method {quoted(req.method)} is not allowed here: use {allowed['Allow']}", allowed)
        case HTTPRouteNotFound():
            return Refusal(error.status_code, f"the path {quoted(req.path)} does not exist")
        case HTTPError():
            return Refusal(error.status_code, error.description or error.title or "bad request", dict(error.headers or {}))
        case _:
            log.error("request_failed", method=req.method, path=req.path, exc_info=error)
            return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")


def _status(error: PenstockError) -> HTTPStatus | None:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
