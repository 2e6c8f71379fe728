"""Texts of others, cut to what a run keeps of them."""

from __future__ import annotations

from penstock.config.limits import ERROR_BYTES_MAX


def shortened(text: str) -> str:
    """`text` without what UTF-8 cannot hold, its first 8 KiB."""
    return text.encode("utf-8", "replace")[:ERROR_BYTES_MAX].decode("utf-8", "ignore")


def last_part(text: str) -> str:
    """`text` without what UTF-8 cannot hold, its last 8 KiB: of a traceback, the last frames. What is cut begins with a
    whole line."""
    body = text.encode("utf-8", "replace")
    if len(body) <= ERROR_BYTES_MAX:
        return body.decode()
    kept = body[-ERROR_BYTES_MAX:].decode("utf-8", "ignore")
    _, line_end, lines = kept.partition("\n")
    return lines if line_end and lines else kept
