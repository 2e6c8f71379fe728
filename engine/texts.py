"""Shortens the texts that a run stores."""

from __future__ import annotations

from penstock.config.limits import ERROR_BYTES_MAX


def shortened(text: str) -> str:
    """The first 8 KiB of `text`, with `?` for what UTF-8 cannot encode."""
    return text.encode("utf-8", "replace")[:ERROR_BYTES_MAX].decode("utf-8", "ignore")


def halves(first: str, second: str) -> tuple[str, str]:
    """Both texts, each shortened so that they fit into one that is stored, with a sentence around them."""
    most = ERROR_BYTES_MAX // 2 - 256
    cut = [text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore") for text in (first, second)]
    return cut[0], cut[1]


def last_part(text: str) -> str:
    """The last 8 KiB of `text`, with `?` for what UTF-8 cannot encode: of a traceback, the last frames.

    A shortened text begins with a whole line.
    """
    body = text.encode("utf-8", "replace")
    if len(body) <= ERROR_BYTES_MAX:
        return body.decode()
    kept = body[-ERROR_BYTES_MAX:].decode("utf-8", "ignore")
    _, line_end, lines = kept.partition("\n")
    return lines if line_end and lines else kept


def cut_utf8(text: str, bytes_max: int, mark: str) -> str:
    """`text` with `?` for what UTF-8 cannot encode; what is longer than so many bytes is cut, and ends with `mark`."""
    body = text.encode("utf-8", "replace")
    if len(body) <= bytes_max:
        return text if text.isascii() else body.decode()
    return body[: bytes_max - len(mark.encode())].decode("utf-8", "ignore") + mark
