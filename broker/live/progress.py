"""The progress of a step, as a worker reports it."""

from __future__ import annotations

import math

from msgspec import Struct

from penstock.config.limits import PROGRESS_TEXT_CHARS_MAX
from penstock.engine.errors import Invalid


class StepProgress(Struct, frozen=True, omit_defaults=True):
    """The body of a message: `done` of `total`, in any unit; without `total` it is not known how much there is."""

    done: float = 0
    total: float | None = None
    text: str = ""
    attempt: int = 1


def progress(done: float, total: float | None, text: str, attempt: int) -> StepProgress:
    """Raises Invalid for what is no progress; a long text is cut."""
    problems = [
        f"{name} must be a number from 0 on, not {value!r:.40}"
        for name, value in (("done", done), ("total", total))
        if value is not None and not (math.isfinite(value) and value >= 0)
    ]
    if problems:
        raise Invalid(*problems)
    return StepProgress(done, total, text[:PROGRESS_TEXT_CHARS_MAX].encode(errors="replace").decode(), attempt)
