"""Hides the token of an approval from callers that may not decide: the events of a run contain it.

Every response that shows events passes them through `masked`, unless `shows_tokens` is true.
"""

from __future__ import annotations

import msgspec
from falcon.asgi import Request
from msgspec import Raw

from penstock.engine.access.scopes import KeyScope
from penstock.engine.run.events import ApprovalRequested, Event
from penstock.http.messages.callers import caller_of

MASK = "***"

_FIELDS = msgspec.json.Decoder(dict[str, Raw])


def shows_tokens(req: Request) -> bool:
    """Whether this caller may see the tokens of approvals: who may operate may decide, too."""
    return caller_of(req).may(KeyScope.OPERATE)


def masked(event: Event, data: bytes) -> bytes:
    """The JSON of an event, which is `data`, without the token that it may contain."""
    if not isinstance(event, ApprovalRequested):
        return data
    fields = _FIELDS.decode(data)
    payload = {**_FIELDS.decode(fields["payload"]), "token": MASK}
    return msgspec.json.encode({**fields, "payload": payload})
