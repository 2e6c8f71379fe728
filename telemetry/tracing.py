"""Spans, and the text by which a trace goes from one process to another (W3C Trace Context)."""

from __future__ import annotations

import re
from typing import NamedTuple

from msgspec import Struct

TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16
SAMPLED = 1  # a bit of the flags


class Span(Struct, frozen=True, omit_defaults=True):
    """A part of a run's time, with the field names of OpenTelemetry; ids in hex as in W3C Trace Context."""

    trace_id: str
    span_id: str
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    parent_span_id: str | None = None
    status: str = "ok"
    attributes: dict[str, str | int] = {}


class TraceParent(NamedTuple):
    """The span under which another one begins. `sampled`: whoever began the trace records it."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def text(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


def trace_parent(header: str | None) -> TraceParent | None:
    """What a header `traceparent` says; None for a text that is none."""
    found = TRACE_PARENT.fullmatch(header or "")
    if not found or found[1] == NO_TRACE or found[2] == NO_SPAN:
        return None
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & SAMPLED))
