"""The errors by which a task function fails, and how a failure is reported to the engine."""

from __future__ import annotations

import math
from pathlib import Path
from traceback import TracebackException

from penstock.broker.worker_messages import NON_RETRIABLE
from penstock.engine.run.event_payloads import Failure
from penstock.engine.texts import last_part, shortened

RETRIABLE = "retriable"
RETRY_AFTER = "retry_after"
FRAMES_MAX = 64  # of each exception: the last ones
PART_CHARS_MAX = 1024  # of a traceback: a frame, or an exception's text, which the error has whole
OURS = str(Path(__file__).parents[1])


class NonRetriable(Exception):
    """Raised by a task function: the step fails for good, whatever its retry policy says."""


class RetryAfter(Exception):
    """Raised by a task function: retry in `delay_s`, instead of the delay in the step's retry policy. It uses up a
    retry."""

    def __init__(self, delay_s: float, text: str = "") -> None:
        if not (math.isfinite(delay_s) and delay_s >= 0):
            raise ValueError(f"a delay of {delay_s} s is not possible")
        super().__init__(text or f"try again in {delay_s:g} s")
        self.delay_s: float = delay_s


class Retriable(Exception):
    """Raised by the service's own task functions: the attempt failed, and the text says all. The step's retry policy
    says whether there is another."""


OWN = (NonRetriable, RetryAfter, Retriable)


def failure(error: BaseException) -> Failure:
    """The payload of step.failed for what a task function raised."""
    text, frames = _text(error), _traceback(error)
    match error:
        case NonRetriable():
            return Failure(error=text, failure_type=NON_RETRIABLE, traceback=frames)
        case RetryAfter():
            return Failure(
                error=text, failure_type=RETRY_AFTER, retry_after_ms=round(error.delay_s * 1000), traceback=frames
            )
        case _:
            return Failure(error=text, traceback=frames)


def _traceback(error: BaseException) -> str:
    """The last frames of the traceback, up to 8 KiB, without those of the worker itself; empty when the function was
    not called."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
        frames = frames.tb_next
    if frames is None:
        return ""
    found = TracebackException(type(error), error, frames, limit=-FRAMES_MAX, compact=True)
    return last_part(
        "".join(part if len(part) <= PART_CHARS_MAX else f"{part[:PART_CHARS_MAX]}…\n" for part in found.format())
    )


def _text(error: BaseException) -> str:
    """`TypeName: text`; only the text for the types of this module."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # the text is made by code of the user's
        return f"{name} (its text cannot be read)"
    if not text:
        return name
    return shortened(text if type(error) in OWN else f"{name}: {text}")
