"""Signatures of webhooks, in the three dialects that are accepted. Protocol: Webhooks and triggers.

All are HMAC-SHA256 with a shared secret: `X-Signature-256` and `X-Hub-Signature-256` over the raw body, written as
`sha256=<hex>`; Standard Webhooks over `<webhook-id>.<webhook-timestamp>.<body>`, written as `v1,<base64>`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from hashlib import sha256

from penstock.config.limits import WEBHOOK_AGE_S_MAX
from penstock.engine.trigger import ENCODED_SECRET

HEX_HEADERS = ("X-Signature-256", "X-Hub-Signature-256")
STANDARD_ID, STANDARD_TIME, STANDARD_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SIGNATURES_MAX = 16  # of one Standard Webhooks header: while secrets change there are two

Header = Callable[[str], str | None]
"""The value of a request's header, whatever the case of its name."""


def is_signed(secret: str, header: Header, body: bytes, now: float) -> bool:
    """Whether one of the signatures in the headers is right; `now` in s since the epoch. Compares in constant time."""
    return _signed_in_hex(secret, header, body) or _signed_by_standard(secret, header, body, now)


def _signed_in_hex(secret: str, header: Header, body: bytes) -> bool:
    expected = "sha256=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    return any(_same((header(name) or "").lower(), expected) for name in HEX_HEADERS)


def _signed_by_standard(secret: str, header: Header, body: bytes, now: float) -> bool:
    message_id, timestamp, signatures = header(STANDARD_ID), header(STANDARD_TIME), header(STANDARD_SIGNATURE)
    if not message_id or not timestamp or not signatures or not _is_recent(timestamp, now):
        return False
    signed = f"{message_id}.{timestamp}.".encode("latin-1", "replace") + body
    expected = "v1," + base64.b64encode(hmac.new(_key(secret), signed, sha256).digest()).decode()
    return any(_same(one, expected) for one in signatures.split(maxsplit=SIGNATURES_MAX))


def _is_recent(timestamp: str, now: float) -> bool:
    return timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 12 and abs(now - int(timestamp)) <= WEBHOOK_AGE_S_MAX


def _key(secret: str) -> bytes:
    """The bytes that a secret stands for in this dialect."""
    if secret.startswith(ENCODED_SECRET):
        try:
            return base64.b64decode(secret.removeprefix(ENCODED_SECRET), validate=True)
        except ValueError:  # a default secret that only begins so
            pass
    return secret.encode()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
