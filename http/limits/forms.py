"""What requests about limits may say."""

from __future__ import annotations

from collections.abc import Iterator

from falcon.asgi import Request
from msgspec import Struct

from penstock.config.limits import (
    LIMIT_KEY_CHARS_MAX,
    LIMIT_MAX,
    LIMIT_SCOPE_CHARS_MAX,
    LIMITS_LISTED_DEFAULT,
    LIMITS_LISTED_MAX,
)
from penstock.engine.definition import durations, values
from penstock.engine.definition.forms import Document, Form, exactly_one, nested, read_object
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from penstock.http.messages import bodies
from penstock.http.messages.fields import Fields, characters, digits, raise_problems
from penstock.http.messages.params import read_query

LISTED: Fields = {"limit": digits(1, LIMITS_LISTED_MAX)}
OF_SCOPE: Fields = {"key": characters(LIMIT_KEY_CHARS_MAX), "kind": values.one_of(*LimitKind)}

_RATE = Form(
    component="RateLimitNow",
    fields={
        "limit": values.whole_number(LIMIT_MAX).annotated(description="So many in `per`. 0 lets nothing begin."),
        "per": values.timeout,
        "burst": values.whole_number(LIMIT_MAX, 1).annotated(
            description="So many at once, after a pause; then one every per/limit."
        ),
    },
    required=("limit", "per"),
)


def _one_of_both(document: Document) -> Iterator[str]:
    given = [key for key in ("limit", "rate_limit") if document.get(key) is not None]
    if len(given) != 1:
        yield f"exactly one of limit, rate_limit is needed, given: {', '.join(given) or 'none'}"


OVERRIDE = Form(
    component="LimitOverride",
    fields={
        "limit": values.whole_number(LIMIT_MAX).annotated(description="So many at a time. 0 lets nothing begin."),
        "rate_limit": nested(_RATE),
    },
    also=_one_of_both,
    schema=exactly_one("limit", "rate_limit"),
)


class LimitOf(Struct, frozen=True):
    """Which limit of a scope is meant."""

    scope: str
    key: str | None
    kind: LimitKind | None


def which(req: Request, scope: str) -> LimitOf:
    """Out of path and query string. Raises Invalid."""
    if problem := problem_with("scope", scope, LIMIT_SCOPE_CHARS_MAX):
        raise Invalid(problem)
    report = Report()
    query = read_query(req, OF_SCOPE, report)
    raise_problems(report)
    kind = query.get("kind")
    return LimitOf(scope, query.get("key"), None if kind is None else LimitKind(kind))


def how_many(req: Request) -> int:
    """How many limits to list."""
    report = Report()
    query = read_query(req, LISTED, report)
    raise_problems(report)
    return int(query.get("limit", LIMITS_LISTED_DEFAULT))


def allowed_in(body: bytes) -> Allowed:
    """How much the body allows. Raises Invalid that names every problem."""
    report = Report()
    read = read_object(OVERRIDE, "", bodies.parse(body), report)
    raise_problems(report)
    rate = read.get("rate_limit")
    if not isinstance(rate, dict):
        return Allowed(int(str(read["limit"])))
    return Allowed(rate["limit"], durations.parse(rate["per"]), rate.get("burst"))
