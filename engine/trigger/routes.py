"""Routes of http triggers: which requests start their runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from penstock.config.limits import CALL_MS_DEFAULT, CALL_MS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.durations import parse, text
from penstock.engine.definition.forms import Document, Form, default_in_words, rule
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.report import Report

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NONE, TOKEN = "none", "token"
PATH_CHARS_MAX = 256

_PATH = re.compile(r"/?[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")


class HttpSource(Struct, frozen=True, omit_defaults=True):
    """`path` comes after /v1/http/ and begins without a slash. `auth` is token or none; `timeout` is how long the
    caller waits for the answer."""

    path: str
    method: str = "POST"
    auth: str = TOKEN
    timeout: str | None = None

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def timeout_s(self) -> float:
        return CALL_MS_DEFAULT / 1000 if self.timeout is None else parse(self.timeout)


@rule(
    {
        "type": "string",
        "pattern": f"^{_PATH.pattern}$",
        "maxLength": PATH_CHARS_MAX,
        "description": "What comes after /v1/http/: names with single slashes between them, without one at the end.",
        "examples": ["orders/new"],
    }
)
def _path(path: str, value: object, report: Report) -> object:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        report.add(
            f"{path} must be names of A-Z a-z 0-9 . _ ~ - with single slashes between them and none at the end, "
            f"not {values.described(value)}"
        )
        return value
    if len(value) > PATH_CHARS_MAX:
        report.add(f"{path} {quoted(value)} has {len(value)} characters, {PATH_CHARS_MAX} is the most")
    return value.removeprefix("/")


def _problems(document: Document) -> Iterator[str]:
    timeout = document.get("timeout")
    try:
        if isinstance(timeout, str | int) and not isinstance(timeout, bool) and parse(timeout) > CALL_MS_MAX / 1000:
            yield f"timeout {timeout} is too long, {text(CALL_MS_MAX / 1000)} is the most"
    except ValueError:
        return  # reported with the field


HTTP = Form(
    component="HttpRoute",
    fields={
        "path": _path,
        "method": values.one_of(*METHODS).annotated(description=default_in_words("POST")),
        "auth": values.one_of(TOKEN, NONE).annotated(
            description=f"Whether a request needs the service's API token. {default_in_words(TOKEN)}"
        ),
        "timeout": values.timeout.annotated(
            description=f"How long the answer may wait for the run. {text(CALL_MS_DEFAULT / 1000)} without it."
        ),
    },
    required=("path",),
    also=_problems,
)
