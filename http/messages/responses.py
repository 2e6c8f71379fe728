"""Answers of success: JSON, and their status."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from falcon import HTTP_201, HTTP_202
from falcon.asgi import Response
from msgspec import Raw, Struct

from penstock.actors.index.freshness import Lag
from penstock.engine.times import rfc3339

INDEX_LAG = "Penstock-Index-Lag"
INDEX_AS_OF = "Penstock-Index-As-Of"
SEQ = "Penstock-Seq"

_ENCODER = msgspec.json.Encoder()


def ok(resp: Response, value: Struct | Sequence[Struct]) -> None:
    resp.data = _ENCODER.encode(value)


def tell_lag(resp: Response, lag: Lag) -> None:
    """Say in the headers how far behind the index is of which this answer is made."""
    resp.set_header(INDEX_LAG, f"{lag.messages};{lag.seconds:.3f}")
    resp.set_header(INDEX_AS_OF, rfc3339(lag.as_of))


def tell_seq(resp: Response, seq: int) -> None:
    """Say in the headers from which sequence of the log on the index has what was started: for `params.min_seq`."""
    resp.set_header(SEQ, str(seq))


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
