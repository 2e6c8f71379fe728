"""From a task's input to the request that is sent, or to the failure that names what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx2
import msgspec
import orjson
from msgspec import Struct

from penstock.engine.definition import durations
from penstock.engine.definition.http_requests import (
    EXPECT_DEFAULT,
    METHODS,
    TIMEOUT_DEFAULT_S,
    header_problem,
    status_problem,
    value_problem,
)
from penstock.engine.definition.identifiers import quoted, shown
from penstock.worker.http_tasks.secret_store import UsedSecrets
from penstock.worker.tasks.failures import NonRetriable

URL_CHARS_MAX = 8192
SHOWN_CHARS_MAX = 200
SCHEMES = ("http", "https")


class SecretPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a header's value that only the worker knows."""

    secret: str


class HttpTask(Struct, frozen=True, forbid_unknown_fields=True):
    """The task's input, as engine/definition/http_requests.py describes it."""

    url: str
    method: str = "GET"
    headers: dict[str, str | list[str | SecretPart]] = {}
    body: Any = None
    timeout: str | int | None = None
    expect: tuple[int | str, ...] = EXPECT_DEFAULT


class HttpRequest(NamedTuple):
    """`headers` has what the task gave, names in lower case; `with_secrets` names those of them that hold one."""

    method: str
    url: httpx2.URL
    headers: dict[str, bytes]
    with_secrets: frozenset[str]
    body: bytes
    timeout_s: float
    expect: tuple[int | str, ...]

    @property
    def text(self) -> str:
        """The request in an error: without its query, where people put keys."""
        return f"{self.method} {shown_url(self.url)}"


def read_request(
    value: object, idempotency_key: str, secrets: UsedSecrets, carried: Mapping[str, str] = {}
) -> HttpRequest:
    """The request that a task's input asks for, with the headers `carried` unless it has its own. Raises
    NonRetriable."""
    try:
        task = msgspec.convert(value, HttpTask)
    except msgspec.ValidationError as error:
        raise NonRetriable(f"the request cannot be read: {error}") from None
    if task.method not in METHODS:
        raise NonRetriable(f"method must be one of {' '.join(METHODS)}, not {quoted(task.method)}")
    for status in task.expect:
        if problem := status_problem(status):
            raise NonRetriable(f"expect: {problem}")
    own = {name: text.encode() for name, text in {"idempotency-key": idempotency_key, **carried}.items()}
    headers = {**own, **_headers(task, secrets)}
    body = _body(task.body, headers)
    return HttpRequest(
        task.method,
        parse_url(task.url),
        headers,
        frozenset(name.lower() for name, given in task.headers.items() if not isinstance(given, str)),
        body,
        _timeout_s(task.timeout),
        task.expect,
    )


def parse_url(text: str) -> httpx2.URL:
    """An address that a request may be sent to. Raises NonRetriable."""
    if len(text) > URL_CHARS_MAX:
        raise NonRetriable(f"the url has {len(text)} characters, {URL_CHARS_MAX} is the most")
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise NonRetriable(f"the url cannot be read: {error}") from None
    if problem := _url_problem(url):
        raise NonRetriable(f"the url {problem}")
    return url


def shown_url(url: httpx2.URL) -> str:
    """Scheme, host and path of `url`."""
    return shown(str(url.copy_with(query=None, fragment=None)), SHOWN_CHARS_MAX)


def _url_problem(url: httpx2.URL) -> str | None:
    if url.scheme not in SCHEMES or not url.host:
        return f"must begin with http:// or https:// and a host, not {quoted(shown_url(url.copy_with(userinfo=b'')))}"
    if url.userinfo:
        return "must not hold a user or a password: an Authorization header with a secret is for that"
    if url.port is not None and not 1 <= url.port <= 65535:
        return f"has the port {url.port}, 65535 is the most"
    return None


def _headers(task: HttpTask, secrets: UsedSecrets) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for name, given in task.headers.items():
        if problem := header_problem(name):
            raise NonRetriable(f"headers: {problem}")
        if name.lower() in headers:
            raise NonRetriable(f"headers: {quoted(name)} is there twice")
        value = given if isinstance(given, str) else "".join(_part(part, secrets) for part in given)
        if problem := value_problem(value):
            raise NonRetriable(f"headers: {quoted(name)} {problem}")
        headers[name.lower()] = value.strip(" \t").encode(errors="replace")
    return headers


def _part(part: str | SecretPart, secrets: UsedSecrets) -> str:
    return secrets.value(part.secret) if isinstance(part, SecretPart) else part


def _body(value: Any, headers: dict[str, bytes]) -> bytes:
    """Text with a content-type of its own is sent as it is, anything else as JSON; null is no body."""
    if value is None:
        return b""
    if isinstance(value, str) and "content-type" in headers:
        return value.encode(errors="replace")
    headers.setdefault("content-type", b"application/json")
    return orjson.dumps(value)


def _timeout_s(value: str | int | None) -> float:
    if value is None:
        return TIMEOUT_DEFAULT_S
    try:
        timeout_s = durations.parse(value)
    except ValueError as error:
        raise NonRetriable(f"timeout {error}") from None
    if not timeout_s > 0:
        raise NonRetriable("timeout must be longer than 0s")
    return timeout_s
