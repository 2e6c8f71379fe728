"""Our spans as those of the SDK, which otherwise gives ids of its own to every span."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from penstock.telemetry.tracing import Span

SCOPE = "penstock"
STATUS = {"ok": Status(StatusCode.UNSET), "error": Status(StatusCode.ERROR)}
RECORDED = TraceFlags(TraceFlags.SAMPLED)


def readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    """The span as exporters take it: with the ids, and the times, that it has."""
    parent = None if span.parent_span_id is None else _context(span.trace_id, span.parent_span_id, is_remote=True)
    return ReadableSpan(
        span.name,
        _context(span.trace_id, span.span_id),
        parent,
        resource,
        span.attributes,
        status=STATUS[span.status],
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano,
        instrumentation_scope=scope,
    )


def _context(trace_id: str, span_id: str, is_remote: bool = False) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=is_remote, trace_flags=RECORDED)
