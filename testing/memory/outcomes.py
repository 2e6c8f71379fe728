"""What a task function returns or raises, as the outcome that a worker would report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from penstock.broker.worker_messages import TaskPayload, decode_input
from penstock.worker.outcomes import Outcome, Pause
from penstock.worker.tasks.failures import NonRetriable, failure
from penstock.worker.tasks.results import put_aside, returned


class CalledTask(Protocol):
    """One task, as its call needs it (tasks.py)."""

    payload: TaskPayload
    deliveries: int


def called(name: str, value: Any, task: TaskPayload) -> Outcome:
    """The outcome of a task that a test answers: with a value, an error, or a function of the input."""
    if isinstance(value, BaseException):
        return outcome_of(name, lambda: _raised(value))
    return outcome_of(name, (lambda: value(decode_input(task))) if callable(value) else (lambda: value))


def outcome_of(name: str, call: Callable[[], Any]) -> Outcome:
    """What becomes of a task whose function is called so."""
    try:
        return returned(name, call())
    except Pause as pause:
        return _put_aside(name, pause)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # whatever a function raises is an answer
        return failure(error)


async def outcome_awaited(name: str, call: Coroutine[Any, Any, Any]) -> Outcome:
    """As `outcome_of`. A cancellation passes through."""
    try:
        return returned(name, await call)
    except Pause as pause:
        return _put_aside(name, pause)
    except (Exception, SystemExit) as error:
        return failure(error)


def _put_aside(name: str, pause: Pause) -> Outcome:
    try:
        return put_aside(name, pause)
    except NonRetriable as error:
        return failure(error)


def _raised(error: BaseException) -> None:
    raise error
