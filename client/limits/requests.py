"""The requests on limits as values, in the way of requests.py."""

from __future__ import annotations

from functools import partial

import httpx2
import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, get, with_query
from penstock.client.limits.views import LimitView, RateView
from penstock.client.responses import decode


class LimitChange(Struct, frozen=True):
    """Either a `limit` or a `rate_limit`."""

    limit: int | UnsetType = UNSET
    rate_limit: RateView | UnsetType = UNSET


def limits(*, limit: int | None = None) -> ApiRequest[list[LimitView]]:
    """The limits that are registered or in use, at most `limit` (1,000 at most, 100 without it): those for which most
    wait come first. Of each, ten holders and ten who wait are named."""
    return get(with_query("/limits", {"limit": None if limit is None else str(limit)}), list[LimitView])


def limit(scope: str, *, key: str | None = None, kind: str | None = None) -> ApiRequest[LimitView]:
    """One limit, with at most 1,000 holders and as many who wait. `kind` is runs, executions or rate, needed where the
    scope has limits of several kinds. Raises NotFound, Invalid."""
    return get(_url(scope, key, kind), LimitView)


def set_limit(
    scope: str,
    limit: int,
    *,
    per: str | None = None,
    burst: int | None = None,
    key: str | None = None,
    kind: str | None = None,
) -> ApiRequest[LimitView]:
    """Let the scope allow so many at a time, or with `per` (duration text) so many in each such span, instead of what
    is registered; for one `key`, or for all, also those to come. It counts at once, and kills nobody. 0 lets nothing
    begin. Raises NotFound, Invalid, Conflict for too many keys."""
    change = LimitChange(limit) if per is None else LimitChange(rate_limit=RateView(limit, per, burst))
    return ApiRequest("PUT", _url(scope, key, kind), partial(decode, kind=LimitView), msgspec.json.encode(change))


def reset_limit(scope: str, *, key: str | None = None, kind: str | None = None) -> ApiRequest[LimitView]:
    """Let what is registered count again. Raises NotFound where nothing was set."""
    return ApiRequest("DELETE", _url(scope, key, kind), partial(decode, kind=LimitView))


def _url(scope: str, key: str | None, kind: str | None) -> httpx2.URL:
    return with_query(f"/limits/{segment(scope)}", {"key": key, "kind": kind})
