"""Who a request comes from, and what it may therefore see."""

from __future__ import annotations

from falcon.asgi import Request

from penstock.engine.access.scopes import EVERYBODY, Caller


def caller_of(req: Request) -> Caller:
    """Who a request comes from, as the authentication has found."""
    found: Caller = getattr(req.context, "caller", EVERYBODY)
    return found
