"""The OpenAPI 3.1 document of the HTTP API, from the table of its operations and the structs that they use.

table.py has a row for each operation, schemas.py converts structs to schemas, definitions.py describes what
hand-written forms check, page.py renders it all for people; reference.py serves the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from string import Formatter
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from penstock.client.views import OUTCOME
from penstock.engine.trigger.signatures import HEX_HEADERS, SLACK_SIGNATURE, SLACK_TIME, STRIPE_SIGNATURE
from penstock.http.messages import responses
from penstock.http.messages.errors import KINDS, OF_THE_FRAMEWORK, PROBLEM, TYPE
from penstock.http.messages.params import SEQ_MAX
from penstock.http.middleware.sessions import COOKIE, CSRF_HEADER
from penstock.http.openapi.definitions import DOCUMENTS, Schema, one_of, ref, whole
from penstock.http.openapi.operations.operation import (
    BYTES,
    HTML,
    JSON,
    STREAM,
    TEXT,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
)
from penstock.http.openapi.operations.parameters import PATHS
from penstock.http.openapi.schemas import Components
from penstock.http.openapi.table import BY_KEYS, OPERATIONS
from penstock.http.openapi.texts import TEXTS

Document: TypeAlias = dict[str, Any]

ABOUT = """Success is JSON. An error is plain text, one problem a line, or application/problem+json (RFC 9457) if Accept
names that. Unknown fields and query parameters are errors. Times are RFC 3339, in UTC. In answers, absent
fields are left out, never null; in requests, null counts as absent. Content-Type is not enforced. HEAD is
answered wherever GET is, with the same headers and no body. A method that a path does not have is 405, with
Allow."""

TAGS: Mapping[str, str] = {
    "Workflows": "Definitions of what runs do.",
    "Runs": "Executions of workflows.",
    "Bulk": "Many runs in one request.",
    "Triggers": "What starts runs without a request of its own.",
    "Dead letters": "What failed for good.",
    "Workers": "Workers, and the queues of their tasks.",
    "Worker bridge": "Workers over HTTP: connect, poll, resolve.",
    "Limits": "How many go on at a time, and how many begin in a time: who has a slot, and who waits.",
    "Access": "Keys, and who has done what.",
    "Service": "Health, numbers, and this document.",
}

# The headers of each way to sign a webhook.
SIGNATURES: tuple[Mapping[str, str], ...] = (
    *({name: "sha256=<hex of HMAC-SHA256(secret, raw body)>"} for name in HEX_HEADERS),
    *(
        {
            f"{prefix}-id": f"{whose}: the delivery's id.",
            f"{prefix}-timestamp": f"{whose}: s since the epoch, at most 5 minutes from now.",
            f"{prefix}-signature": f"{whose}: v1,<base64 of HMAC-SHA256(secret, id.time.body)>",
        }
        for prefix, whose in (("webhook", "Standard Webhooks"), ("svix", "Svix"))
    ),
    {STRIPE_SIGNATURE: "Stripe: t=<s since the epoch>,v1=<hex of HMAC-SHA256(secret, time.body)>"},
    {SLACK_TIME: "Slack: s since the epoch.", SLACK_SIGNATURE: "Slack: v0=<hex of HMAC-SHA256(secret, v0:time:body)>"},
)
SECURITY: Mapping[str, Schema] = {
    Access.API: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, whose scope stands as the role, or SERVICE_API_TOKEN of the service. One that has "
        "neither answers its own machine alone.",
    },
    Access.BRIDGE: {
        "type": "http",
        "scheme": "bearer",
        "description": "SERVICE_BRIDGE_TOKEN of the service, or an API key of scope operate.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "As signIn sets it; changes need the header of csrfToken, too.",
    },
    "csrfToken": {"type": "apiKey", "in": "header", "name": CSRF_HEADER, "description": "As getSession gives it."},
    Access.APPROVAL: {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The one-time token of approval.requested.",
    },
    **{
        name: {"type": "apiKey", "in": "header", "name": name, "description": text}
        for way in SIGNATURES
        for name, text in way.items()
    },
}


class DocumentedError(Struct, frozen=True):
    description: str
    header: str | None = None


REFUSALS: Mapping[int, DocumentedError] = {
    HTTPStatus.BAD_REQUEST: DocumentedError("The request is wrong; every offender is named."),
    HTTPStatus.UNAUTHORIZED: DocumentedError("The token or the signature is missing or wrong.", "WWW-Authenticate"),
    HTTPStatus.FORBIDDEN: DocumentedError(
        "The key does not allow it, and the scope that is needed is named. Or not from there: no token is set and the "
        "peer is on another machine, or a page of another origin asks."
    ),
    HTTPStatus.NOT_FOUND: DocumentedError("It does not exist."),
    HTTPStatus.CONFLICT: DocumentedError("Its state does not allow it."),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: DocumentedError(
        "The body, or a payload in it, is over its limit; nothing was stored."
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: DocumentedError(
        "It was not stored, or the outcome is unknown; it may be sent again."
    ),
    HTTPStatus.BAD_GATEWAY: DocumentedError("The run failed, with this error, or was cancelled."),
    HTTPStatus.SERVICE_UNAVAILABLE: DocumentedError(
        "The broker is away, or does not take it. The outcome of a write is unknown.", "Retry-After"
    ),
}
PROBLEM_SCHEMA: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "problems"],
    "properties": {
        "type": {"type": "string", "enum": [TYPE + kind.name for kind in (*KINDS.values(), *OF_THE_FRAMEWORK)]},
        "title": {"type": "string", "description": "What the type says, in words."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The problems, one a line."},
        "problems": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "missing": {
            "type": "string",
            "enum": ["workflow"],
            "description": "The request is invalid because it names one of these that does not exist.",
        },
    },
}
HEADERS: Mapping[str, Schema] = {
    "Link": {"schema": {"type": "string"}, "description": 'The next page, if there is one: <…>; rel="next".'},
    responses.INDEX_AS_OF: {
        "schema": {"type": "string", "format": "date-time"},
        "description": "The run index, of which this is made, has everything up to this time of the broker.",
    },
    responses.INDEX_LAG: {
        "schema": {"type": "string", "pattern": r"^[0-9]+;[0-9]+\.[0-9]{3}$"},
        "description": "How far that index is behind the log: messages, then seconds.",
    },
    responses.LOCATION: {"schema": {"type": "string"}, "description": "The path of the run."},
    OUTCOME: {
        "schema": one_of("responded", "completed", "failed", "cancelled", "running"),
        "description": (
            "Where the answer comes from: a step that responds, or a run that has completed, failed, was cancelled, or "
            "has not ended."
        ),
    },
    responses.SEQ: {
        "schema": whole(0, SEQ_MAX),
        "description": "Where the log has what was started; a list with Penstock-Min-Seq waits until it has that, too.",
    },
    "ETag": {
        "schema": {"type": "string"},
        "description": "Differs for every other answer: with If-None-Match, what has not changed is 304.",
    },
    "Retry-After": {"schema": {"type": "string"}, "description": "When to try again, in s."},
    "WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer"},
}
SUCCESS: Mapping[int, str] = {
    HTTPStatus.OK: "Done.",
    HTTPStatus.CREATED: "Made.",
    HTTPStatus.ACCEPTED: "Stored, and it will be dealt with.",
    HTTPStatus.NO_CONTENT: "No content.",
    HTTPStatus.NOT_MODIFIED: "The client's copy is still valid.",
}
MEDIA: Mapping[str, Schema] = {
    JSON: {},
    TEXT: {"type": "string"},
    HTML: {"type": "string"},
    STREAM: {
        "type": "object",
        "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
        "description": "Each of the server-sent events, until the client leaves or there is nothing more to send.",
    },
    BYTES: {"type": "string", "format": "binary"},
}


@cache
def document() -> Document:
    """The whole document. It is shared: do not change it."""
    components = Components(_structs_asked(), _structs_answered())
    assert not components.schemas.keys() & DOCUMENTS.keys()
    paths: Document = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "penstock", "version": version("penstock"), "description": ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {**DOCUMENTS, **components.schemas, "Problem": PROBLEM_SCHEMA},
            "responses": {HTTPStatus(status).name: _refusal(refusal) for status, refusal in REFUSALS.items()},
            "headers": dict(HEADERS),
            "securitySchemes": dict(SECURITY),
        },
    }


def to_json() -> bytes:
    """The document as JSON, as it is served."""
    return orjson.dumps(document(), option=orjson.OPT_NON_STR_KEYS)


def path_parameters(operation: Operation) -> list[Parameter]:
    """Those in the operation's path, in their order."""
    found = []
    for before, name, _, _ in Formatter().parse(operation.path):
        if name is not None:
            schema, description, example = PATHS[before.strip("/").rpartition("/")[2], name]
            found.append(Parameter(name, schema, description, example, required=True, place="path"))
    return found


def accepted(operation: Operation) -> list[dict[str, list[str]]]:
    """The ways to authenticate. A key must have the scope that stands there as its role."""
    match operation.access:
        case Access.OPEN | Access.SIGN_IN:
            return []
        case Access.API:
            cookie = ["session"] if operation.method == "get" else ["session", "csrfToken"]
            return [{Access.API: [operation.scope.value]}, {name: [] for name in cookie}, {}]
        case Access.BRIDGE:
            return [{Access.BRIDGE: [operation.scope.value]}]
        case Access.APPROVAL:
            return [{Access.APPROVAL: []}]
        case Access.SIGNATURE:
            return [{name: [] for name in way} for way in SIGNATURES]


def refused(operation: Operation) -> list[int]:
    """The statuses of errors that the operation may answer with."""
    able = {
        HTTPStatus.BAD_REQUEST: operation.parameters or operation.body or "{" in operation.path,
        HTTPStatus.UNAUTHORIZED: operation.access is not Access.OPEN,
        HTTPStatus.FORBIDDEN: operation.access in BY_KEYS,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: operation.body,
        HTTPStatus.SERVICE_UNAVAILABLE: operation.needs_broker,
    }
    return sorted({*operation.refusals, *(status for status, holds in able.items() if holds)})


def _structs_asked() -> Iterator[type[Struct]]:
    for operation in OPERATIONS:
        if operation.body is not None and isinstance(operation.body.shape, type):
            yield operation.body.shape


def _structs_answered() -> Iterator[Any]:
    for operation in OPERATIONS:
        yield from (
            answer.shape
            for answer in operation.answers.values()
            if answer.shape is not None and not isinstance(answer.shape, Mapping)
        )


def _operation(operation: Operation, components: Components) -> Document:
    parameters = [_parameter(one) for one in (*path_parameters(operation), *operation.parameters)]
    body = {"requestBody": _body(operation.body, components)} if operation.body else {}
    answers = {
        str(status): _answer(status, answer, operation, components) for status, answer in operation.answers.items()
    }
    errors = {
        str(status): {"$ref": f"#/components/responses/{HTTPStatus(status).name}"} for status in refused(operation)
    }
    return {
        "operationId": operation.name,
        "summary": operation.responder.__doc__,
        "description": TEXTS[operation.name],
        "tags": [operation.tag],
        "security": accepted(operation),
        **({"parameters": parameters} if parameters else {}),
        **body,
        "responses": {**answers, **errors},
    }


def _parameter(parameter: Parameter) -> Document:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": parameter.schema,
        "example": parameter.value,
    }


def _body(body: Body, components: Components) -> Document:
    """The request body. For bytes of any kind only one media type is shown: a generated client could not choose between
    two."""
    if body.shape is None:
        content: Document = {BYTES: {"schema": MEDIA[BYTES], "example": orjson.dumps(body.example).decode()}}
    else:
        content = {JSON: {"schema": _shape(body.shape, components), "example": body.example}}
    return {"required": body.required, "description": f"At most {body.bytes_max} bytes.", "content": content}


def _answer(status: int, answer: Answer, operation: Operation, components: Components) -> Document:
    shaped = {JSON: _shape(answer.shape, components)} if answer.shape is not None else {}
    described: Document = {"description": SUCCESS[status]}
    if answer.media:
        described["content"] = {media: {"schema": shaped.get(media, MEDIA[media])} for media in answer.media}
    if names := (("Link",) if answer.paged else ()) + answer.headers:
        described["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if operation.leads and answer.shape is not None:
        described["links"] = {
            name: {"operationId": name, "parameters": dict(taken)} for name, taken in operation.leads.items()
        }
    return described


def _shape(shape: Any, components: Components) -> Schema:
    return shape if isinstance(shape, Mapping) else components.schema(shape)


def _refusal(refusal: DocumentedError) -> Document:
    headers = {refusal.header: {"$ref": f"#/components/headers/{refusal.header}"}} if refusal.header else {}
    return {
        "description": refusal.description,
        "content": {TEXT: {"schema": {"type": "string"}}, PROBLEM: {"schema": ref("Problem")}},
        **({"headers": headers} if headers else {}),
    }
