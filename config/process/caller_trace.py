"""The span under which a run begins: the front end sets it for each request with a `traceparent`, where telemetry is
exported, and the event that begins the run contains it."""

from __future__ import annotations

from contextvars import ContextVar

_trace: ContextVar[str | None] = ContextVar("caller_trace", default=None)


def caller_trace() -> str | None:
    """The caller's `traceparent` (W3C Trace Context); None: there is none, or nothing is exported."""
    return _trace.get()


def set_caller_trace(header: str | None) -> None:
    """Set it for what the current task does from now on."""
    _trace.set(header)
