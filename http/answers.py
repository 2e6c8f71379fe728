"""Answers of success: JSON, and their status."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from falcon import HTTP_201, HTTP_202
from falcon.asgi import Response
from msgspec import Raw, Struct

_ENCODER = msgspec.json.Encoder()


def ok(resp: Response, value: Struct | Sequence[Struct]) -> None:
    resp.data = _ENCODER.encode(value)


def created(resp: Response, value: Struct) -> None:
    resp.status = HTTP_201
    resp.data = _ENCODER.encode(value)


def accepted(resp: Response, value: Struct) -> None:
    """It is kept, and will be dealt with."""
    resp.status = HTTP_202
    resp.data = _ENCODER.encode(value)


def ok_raw(resp: Response, documents: Sequence[bytes]) -> None:
    """An array of what is JSON already."""
    resp.data = b"[" + b",".join(documents) + b"]"


def ok_body(resp: Response, document: Raw) -> None:
    """What is JSON already."""
    resp.data = bytes(document)
