"""Why an evaluation gives no value."""

from __future__ import annotations


class EvaluationError(Exception):
    """The evaluation gives no value; the text says why. Absorbed by `||` and `&&` whose other side decides."""


class BoundExceeded(Exception):
    """The evaluation did as much as one may; the text names the bound. Nothing absorbs it."""
