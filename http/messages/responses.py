"""Responses of success: JSON bodies and their statuses."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec
import orjson
from falcon import HTTP_201, HTTP_202
from falcon.asgi import Request, Response
from msgspec import Raw, Struct

from penstock.actors.index.freshness import Lag
from penstock.client.views import OUTCOME
from penstock.engine.run.event_payloads import Reply
from penstock.engine.times import rfc3339

INDEX_LAG = "Penstock-Index-Lag"
INDEX_AS_OF = "Penstock-Index-As-Of"
SEQ = "Penstock-Seq"
LOCATION = "Location"

_ENCODER = msgspec.json.Encoder()


def ok(resp: Response, value: Struct | Sequence[Struct]) -> None:
    resp.data = _ENCODER.encode(value)


def encoded(value: Struct | Sequence[Struct]) -> bytes:
    """The body of an answer."""
    return _ENCODER.encode(value)


def set_lag(resp: Response, lag: Lag) -> None:
    """Set the headers of `lag_headers`."""
    resp.set_headers(lag_headers(lag))


def lag_headers(lag: Lag) -> dict[str, str]:
    """The headers that say how far behind the log the index is that a response is made of."""
    return {INDEX_LAG: f"{lag.messages};{lag.seconds:.3f}", INDEX_AS_OF: rfc3339(lag.as_of)}


def set_seq(resp: Response, seq: int) -> None:
    """Set the header with the sequence in the log of what was started, for `params.min_seq` of a later request."""
    resp.set_header(SEQ, str(seq))


def set_run(resp: Response, run_id: str) -> None:
    """Set the header that leads to the run that a response is about."""
    resp.set_header(LOCATION, f"/runs/{run_id}")


def set_outcome(resp: Response, outcome: str) -> None:
    """Set the header that says where the answer to a call comes from: the status of its run."""
    resp.set_header(OUTCOME, outcome)


def replied(resp: Response, reply: Reply) -> None:
    """What a step of a run responds: a string with a content type of its own as it is, anything else as JSON."""
    resp.status = reply.status
    body, typed = bytes(reply.body), False
    for name, value in reply.headers.items():
        if name.lower() == "content-type":
            resp.content_type, typed = value, True
        else:
            resp.append_header(name, value)
    resp.data = orjson.loads(body).encode() if typed and body.startswith(b'"') else body


def created(resp: Response, value: Struct) -> None:
    resp.status = HTTP_201
    resp.data = _ENCODER.encode(value)


def accepted(resp: Response, value: Struct) -> None:
    """202: the value is stored, and will be processed."""
    resp.status = HTTP_202
    resp.data = _ENCODER.encode(value)


def link(req: Request, cursor: str) -> str:
    """The Link header's value: the next page of this list."""
    query = urlencode({**req.params, "cursor": cursor}, doseq=True)
    return f'<{req.path}?{query}>; rel="next"'


def ok_raw(resp: Response, documents: Sequence[bytes]) -> None:
    """200 with an array of JSON texts."""
    resp.data = listed(documents)


def listed(documents: Sequence[bytes]) -> bytes:
    """An array of JSON texts."""
    return b"[" + b",".join(documents) + b"]"


def ok_body(resp: Response, document: Raw) -> None:
    """200 with a JSON text."""
    resp.data = bytes(document)
