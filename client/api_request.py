"""A request of the API as a value: what is sent, and how its response is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import httpx2
from msgspec import Struct

from penstock.client.responses import check, decode

KEY = "Idempotency-Key"

T = TypeVar("T")


class ApiRequest(Struct, Generic[T], frozen=True):
    """One request; `read` decodes the response of a success, which `check` lets through. The response may come `wait_s`
    seconds later than any other. `takes_key`: with an idempotency key it acts once, however often it is sent;
    `changes_nothing`: so it does without one."""

    method: str
    url: str | httpx2.URL
    read: Callable[[httpx2.Response], T]
    content: bytes = b""
    headers: Mapping[str, str] = {}
    check: Callable[[httpx2.Response], None] = check
    wait_s: float = 0.0
    takes_key: bool = False
    changes_nothing: bool = False

    @property
    def has_key(self) -> bool:
        return KEY in self.headers

    @property
    def is_repeatable(self) -> bool:
        """Whether a second sending cannot act twice."""
        return self.method in ("GET", "PUT") or self.has_key or self.changes_nothing


class PagedRequest(Struct, Generic[T], frozen=True):
    """A list that comes in pages: at most `limit` items of `kind` in total; None means all."""

    url: httpx2.URL
    kind: type[T]
    limit: int | None = None


def get(path: str | httpx2.URL, kind: type[T]) -> ApiRequest[T]:
    return ApiRequest("GET", path, partial(decode, kind=kind))


def post(url: str | httpx2.URL, kind: type[T], content: bytes = b"", headers: Mapping[str, str] = {}) -> ApiRequest[T]:
    return ApiRequest("POST", url, partial(decode, kind=kind), content, headers)


def post_once(url: str, kind: type[T], content: bytes, idempotency_key: str | None) -> ApiRequest[T]:
    """A POST that acts once with a key, however often it is sent; the client makes one if None is given."""
    return ApiRequest("POST", url, partial(decode, kind=kind), content, keyed(idempotency_key), takes_key=True)


def with_query(path: str, query: Mapping[str, str | Sequence[str] | None]) -> httpx2.URL:
    """The path with those parameters that are not None, and one for each of several values."""
    return httpx2.URL(path, params={name: value for name, value in query.items() if value is not None})


def label_texts(labels: Mapping[str, str] | None) -> list[str] | None:
    """Labels as a query string has them, each as one text."""
    return [f"{key}:{value}" for key, value in labels.items()] if labels else None


def truth(value: bool | None) -> str | None:
    """The value as a query string has it."""
    return None if value is None else str(value).lower()


def keyed(idempotency_key: str | None) -> dict[str, str]:
    """The headers of a request that can be repeated safely with this key."""
    return {} if idempotency_key is None else {KEY: idempotency_key}


def page_limit(limit: int | None, most: int) -> str:
    """How many items to request for one page: as many as are wanted, at most `most`."""
    return str(min(limit or most, most))
