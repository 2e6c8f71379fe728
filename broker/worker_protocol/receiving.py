"""What every receiver of a task does first: decode it, and fail its step if it cannot be carried out."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import orjson
from msgspec import Raw, Struct

from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.worker_messages import NON_RETRIABLE, TaskPayload, decode
from penstock.broker.worker_protocol import reports
from penstock.config.limits import DELIVERIES_MAX, PAYLOAD_BYTES_MAX, STEP_ID_CHARS_MAX
from penstock.config.logging import get_logger
from penstock.engine.definition.identifiers import is_run_id, problem_with, shown
from penstock.engine.run.commands import DeadLetterTask
from penstock.engine.run.event_payloads import Failure
from penstock.engine.texts import shortened

NEVER_ANSWERED = f"delivered {DELIVERIES_MAX} times without an answer"

log = get_logger()


class Unreadable(Exception):
    """The body is not a task; the text says why."""


class _Ids(Struct, frozen=True):
    run_id: str
    step_id: str


WithIds = TypeVar("WithIds", TaskPayload, _Ids)

_IDS = msgspec.json.Decoder(_Ids)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def task_in(delivery: Delivery) -> TaskPayload:
    """The task in a delivery. Raises Unreadable."""
    try:
        return _checked(decode(delivery.data))
    except _UNREADABLE as error:
        raise Unreadable(f"malformed task: {error}") from error


async def refuse(store: Store, task_type: str, delivery: Delivery, worker_id: str | None, error: str) -> None:
    """Fail the step of a malformed task, or store a dead letter when the step is unknown; then acknowledge it."""
    log.error("task_malformed", subject=delivery.subject, seq=delivery.seq, error=error)
    try:
        ids = _checked(_IDS.decode(delivery.data))
    except _UNREADABLE:
        await _dead_letter(store, task_type, delivery, error)
    else:
        await store.history.send(reports.failed_unread(ids.run_id, ids.step_id, worker_id, non_retriable(error)))
    await delivery.ack()


async def given_up(store: Store, task: TaskPayload, delivery: Delivery, worker_id: str | None) -> bool:
    """Whether the task was delivered too often without an acknowledgement; then its step is failed and the task
    acknowledged."""
    if delivery.deliveries <= DELIVERIES_MAX:
        return False
    if delivery.deliveries - await store.pauses.count(task) <= DELIVERIES_MAX:
        return False
    await store.history.send(reports.failed(task, worker_id, non_retriable(NEVER_ANSWERED)))
    await delivery.ack()
    return True


async def return_unworked(store: Store, delivery: Delivery) -> None:
    """Give back a task that was not begun, without counting this delivery. Raises Unavailable."""
    try:
        await store.pauses.give_back(task_in(delivery), delivery)
    except Unreadable:
        await delivery.give_back()


def non_retriable(text: str) -> Failure:
    return Failure(error=shortened(text), failure_type=NON_RETRIABLE)


async def _dead_letter(store: Store, task_type: str, delivery: Delivery, error: str) -> None:
    body = Raw(orjson.dumps(delivery.data[:PAYLOAD_BYTES_MAX].decode("utf-8", "replace")))
    dead_letter = DeadLetterTask(f"malformed-{delivery.seq}", task_type, 1, 0, body, {}, error)
    await store.dead_letters.send_task(delivery.subject.rpartition(".")[2], "", dead_letter)


def _checked(ids: WithIds) -> WithIds:
    """Ids become subjects, keys and headers: an id that cannot is malformed."""
    if not is_run_id(ids.run_id):
        raise msgspec.ValidationError(f"run_id {shown(ids.run_id)} is not 32 lowercase hex characters")
    if problem := problem_with("step_id", ids.step_id, STEP_ID_CHARS_MAX):
        raise msgspec.ValidationError(problem)
    return ids
