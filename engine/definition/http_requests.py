"""What an http step may ask for: methods, header names, statuses. Its definition and its worker go by the same rules.

The task's input is an object with these fields: `url`; `method`; `headers`, from name to text, or to a list of texts
and `{"secret": NAME}`, which the worker puts together; `body`; `timeout`, a duration; `expect`, a list of statuses.
All but `url` may be left out.
"""

from __future__ import annotations

import re

from penstock.engine.definition.identifiers import json_type, quoted

TASK = "penstock.http"
BUILTIN = "http"  # what a worker says that carries out these tasks
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
TIMEOUT_DEFAULT_S = 30.0
EXPECT_DEFAULT = ("2xx",)
EXPECT_PATTERN = r"^[1-5]xx$"
STATUS_MIN, STATUS_MAX = 100, 599
HEADER_CHARS_MAX = 128
HEADER_PATTERN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"

# Who frames the message sets them, or they speak of one connection only.
_FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_TOKEN = re.compile(HEADER_PATTERN)
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def header_problem(name: str) -> str | None:
    """What is wrong with the name of a header; None when nothing is."""
    if not _TOKEN.fullmatch(name) or len(name) > HEADER_CHARS_MAX:
        return f"{quoted(name)} is no name of a header"
    if name.lower() in _FRAMING:
        return f"{quoted(name)} is set by who sends the request"
    return None


def value_problem(value: str) -> str | None:
    """What is wrong with the value of a header, which is not in the text; None when nothing is."""
    return "holds a line break or another control character" if _CONTROL.search(value) else None


def status_problem(status: object) -> str | None:
    """What is wrong with an entry of `expect`: a status, or a class of them such as "2xx"; None when nothing is."""
    if isinstance(status, str):
        return None if re.fullmatch(EXPECT_PATTERN, status) else f'{quoted(status)} is neither a status nor "2xx"'
    if isinstance(status, bool) or not isinstance(status, int):
        return f"must be a status, not {json_type(status)}"
    return None if STATUS_MIN <= status <= STATUS_MAX else f"{status} is no status"


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def is_expected(status: int, expect: tuple[int | str, ...]) -> bool:
    return status in expect or f"{status // 100}xx" in expect
