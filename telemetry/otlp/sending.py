"""Sends batches in threads of the SDK: what is not sent is counted, and a stop waits for a bounded time only."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from penstock.telemetry.meters import Counter
from penstock.telemetry.otlp.resource import OtlpTarget

WAITING_MAX = 10_000
STOP_S_MAX = 3.0
SPAN = "otlp_span"


class CountingSpanExporter(SpanExporter):
    """Passes batches on. `taken` counts the spans that have left the queue."""

    def __init__(self, target: OtlpTarget, dropped: Counter) -> None:
        self._exporter = OTLPSpanExporter(endpoint=target.of("traces"), headers=dict(target.headers) or None)
        self._dropped = dropped
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            for _ in spans:
                self._dropped.add(SPAN)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class SpanSender:
    """A queue of bounded length, and the SDK's thread that sends what is in it. The oldest spans are kept."""

    def __init__(self, target: OtlpTarget, dropped: Counter) -> None:
        self._exporter, self._dropped = CountingSpanExporter(target, dropped), dropped
        self.processor = BatchSpanProcessor(self._exporter, max_queue_size=WAITING_MAX)
        self._given = 0

    def send(self, span: ReadableSpan) -> None:
        """Queue the span; where too many wait it is dropped and counted. It never waits."""
        if self._given - self._exporter.taken >= WAITING_MAX:
            self._dropped.add(SPAN)
            return
        self._given += 1
        self.processor.on_end(span)

    def close(self) -> None:
        """Send what waits, for STOP_S_MAX at most."""
        within(STOP_S_MAX, self.processor.shutdown)


def within(limit_s: float, work: Callable[[], object]) -> None:
    """Have `work` done in a thread, and wait for it until the limit; it ends with the process at the latest."""
    thread = threading.Thread(target=work, name="otlp-stop", daemon=True)
    thread.start()
    thread.join(limit_s)


def quiet() -> None:
    """Leave it to the counters to say what could not be sent: the SDK would write a line for each batch, and what sends
    the lines would write further ones."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    for name in ("urllib3", "requests"):
        logging.getLogger(name).setLevel(logging.ERROR)
