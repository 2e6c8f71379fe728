"""One operation of the HTTP API as a row: what the document says about it, besides the structs themselves.

What follows from a row is not in it: 400 for a request that can be wrong, 401 by its access, 413 for a body, 503
wherever the broker is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import Schema

JSON, TEXT, STREAM, BYTES, HTML = (
    "application/json",
    "text/plain",
    "text/event-stream",
    "application/octet-stream",
    "text/html",
)


class Access(StrEnum):
    """The authentication of a request. The values are the names of the document's security schemes."""

    OPEN = "open"
    API = "apiToken"
    BRIDGE = "bridgeToken"
    APPROVAL = "approvalToken"
    SIGNATURE = "signature"
    SIGN_IN = "signIn"  # the key stands in the body


class Parameter(Struct, frozen=True):
    """A query parameter or a header. `example` is a value as in a request."""

    name: str
    schema: Schema
    description: str
    example: str
    required: bool = False
    place: str = "query"

    @property
    def value(self) -> object:
        """The example as its schema has it: a number, or an array of one that is repeated."""
        match self.schema.get("type"):
            case "integer":
                return int(self.example)
            case "array":
                return [self.example]
            case _:
                return self.example


class Body(Struct, frozen=True):
    """`shape` is a struct, a schema, or None for bytes of any kind; `example` is its JSON."""

    shape: Any
    example: object
    required: bool = True
    bytes_max: int = limits.BODY_BYTES_MAX


class Answer(Struct, frozen=True):
    """A response of success. `shape` is a struct, an array of one, a schema, or None for other bytes than JSON.
    `paged`: it may have a Link to the next page. `headers` are always present."""

    shape: Any = None
    media: tuple[str, ...] = (JSON,)
    paged: bool = False
    headers: tuple[str, ...] = ()


class Operation(Struct, frozen=True):
    """`refusals` are the statuses that do not follow from the other fields; `leads` names the operations that use a
    value of the response. `scope` and `about` are what it needs of a key, the strictest unless the row says more. A
    change that is not `audited` is one whose own log says who made it, or none."""

    name: str
    path: str
    responder: Callable[..., Any]
    tag: str
    answers: Mapping[int, Answer]
    access: Access = Access.API
    refusals: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    leads: Mapping[str, Mapping[str, str]] = {}
    needs_broker: bool = True
    scope: KeyScope = KeyScope.ADMIN
    about: About = About.NONE
    audited: bool = True

    @property
    def method(self) -> str:
        return self.responder.__name__.removeprefix("on_")
