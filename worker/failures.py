"""How a task function says that it failed, and how that is told to the engine."""

from __future__ import annotations

import math

from penstock.broker.reception import NON_RETRIABLE, shortened
from penstock.engine.events import Failure

RETRIABLE = "retriable"
RETRY_AFTER = "retry_after"


class NonRetriable(Exception):
    """Raised by a task function: the step fails for good, whatever its retry policy says."""


class RetryAfter(Exception):
    """Raised by a task function: try again `delay_s` from now instead of when the step's retry policy says. It uses up a retry."""

    def __init__(self, delay_s: float, text: str = "") -> None:
        if not (math.isfinite(delay_s) and delay_s >= 0):
            raise ValueError(f"a delay of {delay_s} s is not possible")
        super().__init__(text or f"try again in {delay_s:g} s")
        self.delay_s = delay_s


def failure(error: BaseException) -> Failure:
    """The payload of step.failed for what a task function raised."""
    match error:
        case NonRetriable():
            return Failure(error=_text(error), failure_type=NON_RETRIABLE)
        case RetryAfter():
            return Failure(error=_text(error), failure_type=RETRY_AFTER, retry_after_ms=round(error.delay_s * 1000))
        case _:
            return Failure(error=_text(error))


def _text(error: BaseException) -> str:
    """`TypeName: text`; our own two types say nothing by their names."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # the text is made by code of the user's
        return f"{name} (its text cannot be read)"
    if not text:
        return name
    return shortened(text if type(error) in (NonRetriable, RetryAfter) else f"{name}: {text}")
