"""The broker's errors: its numeric codes, and their translation into the errors of the engine.

Every error of the broker goes through `translated`, every wait for an answer through `Within`.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from types import TracebackType
from typing import Any, TypeVar

from penstock.engine.errors import Conflict, Full, PenstockError, TooLarge, Unavailable

T = TypeVar("T")


class Code(IntEnum):
    """The codes of nats-server (`err_code`) that this service handles."""

    ACCOUNT_FULL = 10002  # the account's storage limit is reached
    TOO_FEW_NODES = 10005  # fewer servers of the cluster are up than a stream wants replicas
    CONSUMER_NOT_FOUND = 10014
    SERVER_FULL = 10023  # the server's storage limit is reached
    MESSAGE_NOT_FOUND = 10037
    SEQUENCE_NOT_FOUND = 10043
    NO_ROOM_FOR_STREAM = 10047  # a new stream would exceed the storage limit
    STREAM_FAILED = 10051  # any failure of a stream; the description says which
    MESSAGE_TOO_LARGE = 10054  # larger than its stream allows
    DELETE_FAILED = 10057  # a message was not deleted, for any reason; the description says which
    STREAM_EXISTS = 10058  # a stream of this name exists with another configuration
    STREAM_NOT_FOUND = 10059
    SUBJECTS_OVERLAP = 10065  # another stream stores some of the same subjects
    WRONG_LAST_SEQUENCE = 10071  # an expected last sequence is stale
    PURGE_FAILED = 10110
    CONSUMER_EXISTS = 10148  # a consumer of this name exists with another configuration
    CONSUMER_GONE = 10149  # the consumer was removed while it was being made: make it again
    WRONG_LAST_SEQUENCE_OF_SUBJECT = 10164
    BATCH_INCOMPLETE = 10176  # messages of an atomic batch did not arrive
    DUPLICATE_IN_BATCH = 10201  # the batch holds a message id that is stored already


STALE = (Code.WRONG_LAST_SEQUENCE, Code.WRONG_LAST_SEQUENCE_OF_SUBJECT)
FULL = (Code.ACCOUNT_FULL, Code.SERVER_FULL, Code.NO_ROOM_FOR_STREAM)

# Answers to a removal when there is nothing to remove. DELETE_FAILED with one of these descriptions means it, too.
NOT_THERE = (Code.STREAM_NOT_FOUND, Code.CONSUMER_NOT_FOUND, Code.SEQUENCE_NOT_FOUND, Code.MESSAGE_NOT_FOUND)
NOT_THERE_TEXTS = ("no message found", "deleted message", "stream store EOF")


class ApiError(PenstockError):
    """The broker refused a request: HTTP-like `code`, its own `err_code` (see `Code`), and a description."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({code}/{err_code})")
        self.code, self.err_code, self.description = code, err_code, description


def translated(error: dict[str, Any]) -> PenstockError:
    """The broker's error object as one of ours.

    A stale expectation is Conflict, a full storage is Full, a message over its stream's limit is TooLarge, a failure of
    the broker itself is Unavailable, anything else ApiError.
    """
    code, err_code, text = error.get("code", 500), error.get("err_code", 0), error.get("description", "unknown error")
    if err_code in STALE:
        return Conflict(f"broker: {text}")
    if err_code in FULL:
        return Full(f"the broker's storage is full, nothing was stored ({text})")
    if err_code == Code.MESSAGE_TOO_LARGE:
        return TooLarge(f"broker: {text}")
    if err_code == Code.DELETE_FAILED and text in NOT_THERE_TEXTS:  # the broker reports a failure, which it is not
        return ApiError(404, Code.SEQUENCE_NOT_FOUND, text)
    if code in (429, 503) or code == 500:
        return Unavailable(f"broker: {text} ({err_code})")
    return ApiError(code, err_code, text)


class Within:
    """A time limit for the block, in s. Raises Unavailable with this message when it is over."""

    __slots__ = ("_message", "timeout")

    def __init__(self, timeout_s: float, message: str) -> None:
        self.timeout, self._message = asyncio.timeout(timeout_s), message

    async def __aenter__(self) -> None:
        await self.timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise Unavailable(self._message) from late


async def within(future: asyncio.Future[T], timeout_s: float, message: str) -> T:
    """The result of one future. As `Within`, at a quarter of its cost; the future ends with the time limit."""
    if future.done():
        return future.result()
    limit = future.get_loop().call_later(timeout_s, fail, future, message)
    try:
        return await future
    finally:
        limit.cancel()


def fail(future: asyncio.Future[Any], message: str) -> None:
    """End a future by Unavailable with this message, if it has not ended."""
    if not future.done():
        future.set_exception(Unavailable(message))
