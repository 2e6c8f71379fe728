"""Maps each error to its HTTP status; no other module does. The response is plain text, one problem a line, or RFC 9457
JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from falcon import HTTPError, HTTPMethodNotAllowed, HTTPRouteNotFound, InvalidMediaType
from falcon.asgi import App, Request, Response, WebSocket
from falcon.util import mediatypes
from msgspec import UNSET, Struct, UnsetType

from penstock.config.logging import get_logger
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import (
    CallFailed,
    Conflict,
    Denied,
    ExpressionFailed,
    Forbidden,
    Full,
    Invalid,
    NeedsUpgrade,
    NotFound,
    OutOfScope,
    PenstockError,
    PublishFailed,
    TooLarge,
    Unavailable,
    UnknownWorkflow,
)


class ProblemKind(Struct, frozen=True):
    """`name` is the permanent name of this kind of error, for programs; `title` describes it for people."""

    status: HTTPStatus
    name: str
    title: str


KINDS: Mapping[type[PenstockError], ProblemKind] = {
    Invalid: ProblemKind(HTTPStatus.BAD_REQUEST, "invalid", "The request breaks a rule"),
    Denied: ProblemKind(HTTPStatus.UNAUTHORIZED, "unauthorized", "The token or the signature is missing or wrong"),
    Forbidden: ProblemKind(HTTPStatus.FORBIDDEN, "forbidden", "Not allowed from where the request comes"),
    OutOfScope: ProblemKind(HTTPStatus.FORBIDDEN, "out-of-scope", "The key does not allow it"),
    NotFound: ProblemKind(HTTPStatus.NOT_FOUND, "not-found", "It does not exist"),
    Conflict: ProblemKind(HTTPStatus.CONFLICT, "conflict", "Its state does not allow it"),
    TooLarge: ProblemKind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "Over its limit, nothing was stored"),
    Full: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "storage-full", "The storage has no room, nothing was stored"),
    NeedsUpgrade: ProblemKind(
        HTTPStatus.SERVICE_UNAVAILABLE, "needs-upgrade", "Stored by a newer version of the service"
    ),
    Unavailable: ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The service cannot do it now"),
    ExpressionFailed: ProblemKind(HTTPStatus.BAD_REQUEST, "expression-failed", "An expression has no value"),
    CallFailed: ProblemKind(HTTPStatus.BAD_GATEWAY, "call-failed", "The run that was called failed, or was cancelled"),
    PublishFailed: ProblemKind(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "not-written",
        "It was not stored, or the outcome is unknown; it may be sent again",
    ),
}
NO_SUCH_PATH = ProblemKind(HTTPStatus.NOT_FOUND, "no-such-path", "The path does not exist")
METHOD_NOT_ALLOWED = ProblemKind(
    HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", "The path does not have this method"
)
MALFORMED = ProblemKind(HTTPStatus.BAD_REQUEST, "malformed", "The request itself cannot be read")
INTERNAL = ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "Something went wrong in the service")
OF_THE_FRAMEWORK = (NO_SUCH_PATH, METHOD_NOT_ALLOWED, MALFORMED, INTERNAL)
HEADERS: Mapping[int, Mapping[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}

PROBLEM = "application/problem+json"
PLAIN = "text/plain; charset=utf-8"
TYPE = "urn:penstock:problem:"

log = get_logger()


@contextmanager
def publishing() -> Iterator[None]:
    """Raise PublishFailed, which is 500, where the specification requires it when the broker does not store a message.
    Spec: Runs, cancel and signal."""
    try:
        yield
    except Unavailable as error:
        raise PublishFailed(str(error)) from error


class ProblemResponse(Struct, frozen=True):
    kind: ProblemKind
    text: str
    headers: Mapping[str, str] = {}
    missing: str | UnsetType = UNSET


class Problem(Struct, frozen=True):
    """RFC 9457; `problems` are the lines of `detail`. `missing` is what kind of object the request names that does not
    exist, where the status does not say so."""

    type: str
    title: str
    status: int
    detail: str
    problems: list[str]
    missing: str | UnsetType = UNSET


def status_of(error: PenstockError) -> int:
    """The status of the response to a request that raises this."""
    return (_kind(error) or INTERNAL).status.value


def answer_to(error: PenstockError, accept: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the response to a request with this `Accept` that raised this, for what is answered
    outside of the framework."""
    kind = _kind(error) or INTERNAL
    found = ProblemResponse(kind, str(error), HEADERS.get(kind.status, {}))
    content_type, body = _body(found, accept)
    return kind.status.value, {"content-type": content_type, **found.headers, "vary": "Accept"}, body


def was_refused(req: Request) -> bool:
    """Whether the request was answered with 403 by the service itself, not by a step that responds."""
    return getattr(req.context, "refused", False)


def register(app: App[Request, Response]) -> None:
    """Handle every exception of the application here; HTTPError is named because the framework has a handler of its
    own."""
    app.add_error_handler((Exception, HTTPError), _answer)


async def _answer(
    req: Request, resp: Response | None, error: Exception, params: dict[str, Any], ws: WebSocket | None = None
) -> None:
    found = _problem_response(req, error)
    req.context.refused = isinstance(error, Forbidden)
    if resp is None:
        assert ws is not None
        await ws.close()
        return
    resp.status = found.kind.status
    resp.text = None  # it would count more than the data
    resp.content_type, resp.data = _body(found, req.get_header("Accept") or "")
    resp.set_headers(dict(found.headers))
    resp.append_header("Vary", "Accept")


def _body(found: ProblemResponse, accept: str) -> tuple[str, bytes]:
    """Its content type, and itself."""
    if _asks_for_problem(accept.lower()):
        return PROBLEM, msgspec.json.encode(_problem(found))
    return PLAIN, f"{found.text}\n".encode()


def _asks_for_problem(accept: str) -> bool:
    """Whether a client names this format and does not prefer plain text. A client that accepts anything gets plain
    text."""
    if PROBLEM not in accept:
        return False
    try:
        return 0 < mediatypes.quality(PROBLEM, accept) >= mediatypes.quality("text/plain", accept)
    except InvalidMediaType:
        return False


def _problem(found: ProblemResponse) -> Problem:
    kind = found.kind
    return Problem(TYPE + kind.name, kind.title, kind.status, found.text, found.text.split("\n"), found.missing)


def _problem_response(req: Request, error: Exception) -> ProblemResponse:
    match error:
        case PenstockError() if kind := _kind(error):
            missing = "workflow" if isinstance(error, UnknownWorkflow) else UNSET
            return ProblemResponse(kind, str(error), HEADERS.get(kind.status, {}), missing)
        case HTTPMethodNotAllowed(headers=headers):
            allowed = dict(headers or {})
            return ProblemResponse(
                METHOD_NOT_ALLOWED,
                f"the method {quoted(req.method)} is not allowed here: use {allowed['Allow']}",
                allowed,
            )
        case HTTPRouteNotFound():
            return ProblemResponse(NO_SUCH_PATH, f"the path {quoted(req.path)} does not exist")
        case HTTPError():
            kind = msgspec.structs.replace(MALFORMED, status=HTTPStatus(error.status_code))
            return ProblemResponse(kind, error.description or error.title or "bad request", dict(error.headers or {}))
        case _:
            log.error("request_failed", method=req.method, path=req.path, exc_info=error)
            return ProblemResponse(INTERNAL, "internal error")


def _kind(error: PenstockError) -> ProblemKind | None:
    return next((KINDS[kind] for kind in type(error).__mro__ if kind in KINDS), None)
