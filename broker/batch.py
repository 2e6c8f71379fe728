"""Atomic batches: all messages of one stream are stored, or none."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import orjson
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from penstock.broker.connection import DUPLICATE_IN_BATCH, ApiError, Broker, refusal
from penstock.broker.names import MSG_ID
from penstock.engine.errors import Conflict, NotFound, Unavailable

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
COMMIT_TIMEOUT_S = 2.0
INCOMPLETE = 10176

Message = tuple[str, bytes, str]
"""Subject, body, message id."""

_AGAIN = AsyncRetrying(
    retry=retry_if_exception_type(Unavailable), wait=wait_random_exponential(0.01, 0.2), stop=stop_after_delay(5), reraise=True
)


async def publish_batch(broker: Broker, messages: Sequence[Message], headers: dict[str, str] | None = None) -> None:
    """Store up to 1,000 messages of one stream, all or none; `headers` go on each of them.

    A batch whose outcome is unknown is sent again with the same message ids, so it is stored once. Raises Unavailable
    when the broker gives no answer for 5 s (outcome unknown), Conflict when one of the expectations in `headers` is stale.
    """
    try:
        await _publish_once(broker, messages, headers)
    except Unavailable:
        await _AGAIN(_publish_once, broker, messages, headers)


async def _publish_once(broker: Broker, messages: Sequence[Message], headers: dict[str, str] | None) -> None:
    batch = uuid4().hex
    if not broker.connected:
        raise Unavailable("broker: not connected")
    for number, (subject, data, message_id) in enumerate(messages[:-1], start=1):
        await broker.publish(subject, data, headers=_headers(batch, number, message_id, headers))
    subject, data, message_id = messages[-1]
    last = {**_headers(batch, len(messages), message_id, headers), BATCH_COMMIT: "1"}
    answer = await _commit(broker, subject, data, last)
    if "error" in answer:
        _raise(answer["error"])


async def _commit(broker: Broker, subject: str, data: bytes, headers: dict[str, str]) -> dict[str, object]:
    try:
        reply = await broker.request(subject, data, COMMIT_TIMEOUT_S, headers)
    except NotFound as error:
        raise Unavailable("broker: no stream takes this batch") from error
    answer: dict[str, object] = orjson.loads(reply.data)
    return answer


def _headers(batch: str, number: int, message_id: str, more: dict[str, str] | None) -> dict[str, str]:
    own = {BATCH_ID: batch, BATCH_SEQUENCE: str(number), MSG_ID: message_id}
    return own if more is None else {**own, **more}


def _raise(error: object) -> None:
    """A duplicate id means that this very batch was stored before: its ids always travel together."""
    assert isinstance(error, dict)
    if error.get("err_code") == DUPLICATE_IN_BATCH:
        return
    if error.get("err_code") == INCOMPLETE:
        raise Unavailable("broker: a batch was cut short")
    problem = refusal(error)
    assert isinstance(problem, Unavailable | Conflict | ApiError)
    raise problem
