"""Export of the spans of a worker's process, which may be somebody's application with telemetry of its own."""

from __future__ import annotations

from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from penstock.telemetry.meters import Counter
from penstock.telemetry.metrics import METRICS
from penstock.telemetry.otlp.resource import WORKER, OtlpTarget, resource
from penstock.telemetry.otlp.sending import STOP_S_MAX, SpanSender, within

_open: list[SpanSender] = []


def set_up(target: OtlpTarget) -> None:
    """Export spans of this process from now on, unless it has a tracer provider already. OpenTelemetry allows one for
    the life of a process, so this stays."""
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider(resource=resource(WORKER, "worker", version("penstock")), shutdown_on_exit=False)
    sender = SpanSender(target, Counter(METRICS["penstock_telemetry_dropped_total"]))
    provider.add_span_processor(sender.processor)
    trace.set_tracer_provider(provider)
    _open.append(sender)


def flush() -> None:
    """Send what waits, for a bounded time."""
    for sender in _open:
        within(STOP_S_MAX, sender.processor.force_flush)
