"""Spans of other processes. This needs the API of OpenTelemetry, not the SDK."""

from __future__ import annotations

from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from penstock.telemetry.tracing import TraceParent


def remote(parent: TraceParent) -> NonRecordingSpan:
    """A span of another process, under which spans begin here."""
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    context = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return NonRecordingSpan(context)
