"""Export of the lines of this process's log: the event as the body, its fields as attributes, with the trace that the
line is about."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock.telemetry.meters import Counter
from penstock.telemetry.otlp.remote import remote
from penstock.telemetry.otlp.resource import OtlpTarget
from penstock.telemetry.otlp.sending import STOP_S_MAX, WAITING_MAX, within
from penstock.telemetry.tracing import TraceParent

LOG = "otlp_log"
TEXT_CHARS_MAX = 8192
SEVERITY: Mapping[str, SeverityNumber] = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}
OWN = frozenset({"event", "level", "timestamp", "exc_info", "process", "pid"})

Hide = Callable[[str, str], str]


class _CountingExporter(OTLPLogExporter):
    """`taken` counts the lines that have left the queue."""

    def __init__(self, target: OtlpTarget, dropped: Counter) -> None:
        super().__init__(endpoint=target.of("logs"), headers=dict(target.headers) or None)
        self._dropped = dropped
        self.taken = 0

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        self.taken += len(batch)
        result = super().export(batch)
        if result is not LogRecordExportResult.SUCCESS:
            for _ in batch:
                self._dropped.add(LOG)
        return result


class LogSender:
    """`hide` returns the text of a field without the secrets in it; `span_of` gives the span of a run's id."""

    def __init__(
        self,
        target: OtlpTarget,
        resource: Resource,
        scope: InstrumentationScope,
        hide: Hide,
        span_of: Callable[[str], TraceParent | None],
        dropped: Counter,
    ) -> None:
        self._exporter = _CountingExporter(target, dropped)
        self._hide, self._span_of, self._dropped, self._given = hide, span_of, dropped, 0
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(self._exporter, max_queue_size=WAITING_MAX))
        self._logger = self._provider.get_logger(scope.name, scope.version)

    def line(self, event: Mapping[str, object]) -> None:
        """Queue a line of the log; where too many wait it is dropped and counted. It never waits."""
        if self._given - self._exporter.taken >= WAITING_MAX:
            self._dropped.add(LOG)
            return
        self._given += 1
        now, level = time.time_ns(), str(event.get("level", "info"))
        self._logger.emit(
            LogRecord(
                timestamp=now,
                observed_timestamp=now,
                context=self._context(event),
                severity_text=level.upper(),
                severity_number=SEVERITY.get(level, SeverityNumber.UNSPECIFIED),
                body=self._hide("event", str(event.get("event", ""))[:TEXT_CHARS_MAX]),
                attributes={**self._fields(event), **self._exception(event.get("exc_info"))},
            )
        )

    def close(self) -> None:
        """Send what waits, for STOP_S_MAX at most."""
        within(STOP_S_MAX, self._provider.shutdown)

    def _context(self, event: Mapping[str, object]) -> contexts.Context:
        """With the current span of this thread or task, or else with that of the run that the line names."""
        current = contexts.get_current()
        if trace.get_current_span(current).get_span_context().is_valid:
            return current
        run_id = event.get("run_id")
        span = self._span_of(run_id) if isinstance(run_id, str) else None
        return current if span is None else trace.set_span_in_context(remote(span), current)

    def _fields(self, event: Mapping[str, object]) -> dict[str, str | bool | int | float]:
        named = ((name, value) for name, value in event.items() if name not in OWN and not name.startswith("_"))
        return {name: self._plain(name, value) for name, value in named if value is not None}

    def _plain(self, name: str, value: object) -> str | bool | int | float:
        if isinstance(value, bool | int | float):
            return value
        return self._hide(name, (value if isinstance(value, str) else repr(value))[:TEXT_CHARS_MAX])

    def _exception(self, info: object) -> dict[str, str]:
        """In the forms that loggers take: the exception, its triple, or true for the one that is being handled."""
        error = info[1] if isinstance(info, tuple) else info
        if error is True:
            error = sys.exception()
        if not isinstance(error, BaseException):
            return {}
        frames = "".join(traceback.format_exception(error))[-TEXT_CHARS_MAX:]
        return {
            "exception.type": type(error).__qualname__,
            "exception.message": self._hide("exception", str(error)[:TEXT_CHARS_MAX]),
            "exception.stacktrace": self._hide("exception", frames),
        }
