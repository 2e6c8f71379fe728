"""The address of the service, and how to connect to it: the options that both kinds of connection share."""

from __future__ import annotations

from typing import TypedDict
from urllib.parse import quote

import httpx2

from penstock.engine import errors

TIMEOUT_S = 30.0  # for a response
STREAM_SILENCE_S_MAX = 60.0  # then the connection counts as lost

ACCEPT = "application/problem+json, */*;q=0.5"  # errors with the permanent name of their kind


class Options(TypedDict):
    """Keyword arguments of httpx2.Client and httpx2.AsyncClient."""

    base_url: httpx2.URL
    headers: dict[str, str]
    timeout: float
    verify: bool
    trust_env: bool


def options(base_url: str, token: str | None, timeout_s: float) -> Options:
    """The options of a connection. Raises Invalid when `base_url` is not an http:// or https:// address, or the token
    cannot be sent."""
    url = checked(base_url)
    if token and not (token.isascii() and token.isprintable()):
        raise errors.Invalid("the token may hold printable ASCII characters only")
    return {
        "base_url": url,
        "headers": {"Accept": ACCEPT, **({"Authorization": f"Bearer {token}"} if token else {})},
        "timeout": timeout_s,
        "verify": url.scheme == "https",
        "trust_env": url.host not in ("localhost", "127.0.0.1", "::1"),  # no proxy to ourselves
    }


def stream_timeout(timeout_s: float) -> httpx2.Timeout:
    """`timeout_s` for everything except reading: a stream may be silent for longer."""
    return httpx2.Timeout(timeout_s, read=STREAM_SILENCE_S_MAX)


def checked(text: str) -> httpx2.URL:
    """The address of a service. Raises Invalid when it is not an http:// or https:// address."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise errors.Invalid(f"{text!r} is no address of a service: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise errors.Invalid(
            f"{text!r} is no address of a service: "
            "it must begin with http:// or https://, as http://localhost:8080 does"
        )
    return url


def whole(base_url: httpx2.URL, url: httpx2.URL | str) -> httpx2.URL:
    """The URL of a request: below the service's address, unless it has one itself, as a link to the next page has."""
    found = httpx2.URL(url)
    if found.is_absolute_url:
        return found
    return base_url.copy_with(raw_path=base_url.raw_path.rstrip(b"/") + b"/" + found.raw_path.lstrip(b"/"))


def segment(name: str) -> str:
    """One segment of a path, whatever `name` holds."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
