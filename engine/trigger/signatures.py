"""Signatures of webhooks, in the dialects that are accepted, and what else each of them says in headers. Protocol:
Webhooks and triggers.

All are HMAC-SHA256 with a shared secret, over the body as it came, some of them with its time before it:

    X-Signature-256, X-Hub-Signature-256    sha256=<hex>        body
    webhook-signature, svix-signature       v1,<base64> …       <id>.<time>.<body>
    Stripe-Signature                        t=<time>,v1=<hex>…  <time>.<body>
    X-Slack-Signature                       v0=<hex>            v0:<time>:<body>
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256

from msgspec import Struct

from penstock.config.limits import WEBHOOK_AGE_S_MAX
from penstock.engine.trigger.trigger import ENCODED_SECRET

HEX_HEADERS = ("X-Signature-256", "X-Hub-Signature-256")
STRIPE_SIGNATURE = "Stripe-Signature"
SLACK_TIME, SLACK_SIGNATURE = "X-Slack-Request-Timestamp", "X-Slack-Signature"
SIGNATURES_MAX = 16  # in one header: there are two while a secret is being changed

Header = Callable[[str], str | None]
"""The value of a request's header, whatever the case of its name."""


class Dialect(Struct, frozen=True):
    """`headers` are all headers of the dialect except signatures. `ids` are the headers that may identify a delivery,
    and `body_id` is the field of its body that does."""

    name: str
    headers: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    body_id: str | None = None


class Signed(Struct, frozen=True):
    """A valid signature. `time` is the signed time, s since the epoch as text; None where a dialect has none."""

    dialect: Dialect
    time: str | None = None


def _standard(prefix: str) -> Dialect:
    """Standard Webhooks, under its own header names and under those of Svix."""
    return Dialect(prefix, (f"{prefix}-id", f"{prefix}-timestamp"), (f"{prefix}-id",))


PLAIN = Dialect(
    "plain",
    (
        "webhook-id",
        "x-github-event",
        "x-github-delivery",
        "x-github-hook-id",
        "x-github-hook-installation-target-id",
        "x-github-hook-installation-target-type",
    ),
    ("webhook-id", "x-github-delivery"),
)
STANDARD, SVIX = _standard("webhook"), _standard("svix")
STRIPE = Dialect("stripe", body_id="id")
SLACK = Dialect("slack", (SLACK_TIME.lower(), "x-slack-retry-num", "x-slack-retry-reason"), body_id="event_id")


def signed_by(secret: str, header: Header, body: bytes, now: float) -> Signed | None:
    """The first valid signature in the headers, None without any. `now` is s since the epoch.

    Signatures are compared in constant time.
    """
    return (
        _plain(secret, header, body)
        or _by_standard(STANDARD, secret, header, body, now)
        or _by_standard(SVIX, secret, header, body, now)
        or _by_stripe(secret, header, body, now)
        or _by_slack(secret, header, body, now)
    )


def delivery_id(signed: Signed, header: Header, body: bytes, value: object) -> str | None:
    """An id that is the same for each sending of one delivery; None when the dialect has none. `value` is the id in the
    body.

    A delivery with a signed time and no id is identified by its time and body, so that the same bytes count once.
    """
    dialect = signed.dialect
    if named := next((found for name in dialect.ids if (found := header(name))), None):
        return named
    within = value.get(dialect.body_id) if isinstance(value, dict) and dialect.body_id else None
    if isinstance(within, str) and within:
        return within
    return None if signed.time is None else f"{signed.time} {sha256(body).hexdigest()}"


def _plain(secret: str, header: Header, body: bytes) -> Signed | None:
    given = [value.lower() for name in HEX_HEADERS if (value := header(name))]
    return Signed(PLAIN) if given and _one_is(given, "sha256=" + _mac(secret.encode(), body).hex()) else None


def _by_standard(dialect: Dialect, secret: str, header: Header, body: bytes, now: float) -> Signed | None:
    message_id, time, given = (header(f"{dialect.name}-{what}") for what in ("id", "timestamp", "signature"))
    if not message_id or not time or not given or not _is_recent(time, now):
        return None
    mac = _mac(_key(secret), f"{message_id}.{time}.".encode("latin-1", "replace") + body)
    return Signed(dialect, time) if _one_is(given.split(), "v1," + base64.b64encode(mac).decode()) else None


def _by_stripe(secret: str, header: Header, body: bytes, now: float) -> Signed | None:
    fields = [field.strip().partition("=") for field in (header(STRIPE_SIGNATURE) or "").split(",", SIGNATURES_MAX + 1)]
    time = next((value for name, _, value in fields if name == "t"), "")
    if not _is_recent(time, now):
        return None
    mac = _mac(secret.encode(), f"{time}.".encode() + body).hex()
    return Signed(STRIPE, time) if _one_is([value for name, _, value in fields if name == "v1"], mac) else None


def _by_slack(secret: str, header: Header, body: bytes, now: float) -> Signed | None:
    time, given = header(SLACK_TIME), header(SLACK_SIGNATURE)
    if not time or not given or not _is_recent(time, now):
        return None
    return (
        Signed(SLACK, time)
        if _one_is([given], "v0=" + _mac(secret.encode(), f"v0:{time}:".encode() + body).hex())
        else None
    )


def _is_recent(time: str, now: float) -> bool:
    return time.isascii() and time.isdecimal() and len(time) < 12 and abs(now - int(time)) <= WEBHOOK_AGE_S_MAX


def _key(secret: str) -> bytes:
    """The key bytes that a secret encodes in Standard Webhooks."""
    if secret.startswith(ENCODED_SECRET):
        try:
            return base64.b64decode(secret.removeprefix(ENCODED_SECRET), validate=True)
        except ValueError:  # a plain secret that happens to begin with the prefix
            pass
    return secret.encode()


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")


def _one_is(given: Iterable[str], expected: str) -> bool:
    """Whether one of the first signatures given equals this one."""
    return any(
        hmac.compare_digest(one.encode("utf-8", "replace"), expected.encode()) for one in list(given)[:SIGNATURES_MAX]
    )
