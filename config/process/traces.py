"""How a trace comes into this process, and how it leaves it by requests over HTTP."""

from __future__ import annotations

import sys
from contextvars import ContextVar

_trace: ContextVar[str | None] = ContextVar("caller_trace", default=None)


def caller_trace() -> str | None:
    """The caller's `traceparent` (W3C Trace Context), under which a run begins: the event that begins it contains it.
    None: there is none, or nothing is exported."""
    return _trace.get()


def set_caller_trace(header: str | None) -> None:
    """Set it for what the current task does from now on: the front end does for each request, where telemetry is
    exported."""
    _trace.set(header)


def trace_headers() -> dict[str, str]:
    """The headers that carry the current span of this thread or task on; none where nobody uses OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
