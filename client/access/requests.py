"""The requests on API keys."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from penstock.client.access.views import AuditView, CreatedKey, KeyView, RevokedKey, SessionView
from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, PagedRequest, get, page_limit, post, with_query
from penstock.client.bodies import KeyCreation
from penstock.client.responses import decode
from penstock.config.limits import AUDIT_LISTED_MAX


def audit(*, limit: int | None = None) -> PagedRequest[AuditView]:
    """The audit log, newest first, at most `limit` entries; pages are fetched as they are needed. Raises Forbidden
    without a key of scope admin."""
    return PagedRequest(with_query("/audit", {"limit": page_limit(limit, AUDIT_LISTED_MAX)}), AuditView, limit)


def session() -> ApiRequest[SessionView]:
    """Who the client's key belongs to, and what it may do."""
    return get("/session", SessionView)


def keys() -> ApiRequest[list[KeyView]]:
    """All API keys, by name; never the keys themselves. Raises Forbidden without a key of scope admin."""
    return get("/keys", list[KeyView])


def create_key(
    name: str, scope: str, *, workflow: str | None = None, expires: str | None = None
) -> ApiRequest[CreatedKey]:
    """Create an API key of scope read, operate or admin; its `key` is in this result only.

    `workflow` is a pattern of the workflows that it is for (`order-*`), `expires` how long it is valid (`90d`). Raises
    Invalid, Conflict for a name that is taken, and for a first key that is not of scope admin.
    """
    body = KeyCreation(name, scope, UNSET if workflow is None else workflow, UNSET if expires is None else expires)
    return post("/keys", CreatedKey, msgspec.json.encode(body))


def revoke_key(name: str) -> ApiRequest[RevokedKey]:
    """Revoke an API key. Raises NotFound, Conflict for the last one of scope admin."""
    return ApiRequest("DELETE", f"/keys/{segment(name)}", partial(decode, kind=RevokedKey))
