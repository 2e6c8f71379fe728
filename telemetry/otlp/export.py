"""All that a process of the service exports."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import set_span_in_context

from penstock.telemetry.log_lines import LOG_LINES
from penstock.telemetry.meters import Meters, Sample
from penstock.telemetry.otlp.logs import Hide, LogSender
from penstock.telemetry.otlp.metrics import MetricSender
from penstock.telemetry.otlp.remote import remote
from penstock.telemetry.otlp.resource import SERVICE, OtlpTarget, resource
from penstock.telemetry.otlp.sending import STOP_S_MAX, SpanSender, quiet, within
from penstock.telemetry.otlp.spans import SCOPE, readable
from penstock.telemetry.tracing import NO_TRACE, Span, TraceParent

SAMPLED_KEPT = 10_000
RUNS_KEPT = 10_000  # that belong to a trace of their caller
TRACE_ID = re.compile("[0-9a-f]{32}")


class OtlpExport:
    """Owned by a process, from `opened` in actors/telemetry. Nothing here waits, but for `close`."""

    def __init__(
        self,
        target: OtlpTarget,
        process: str,
        version: str,
        meters: Meters,
        read: Callable[[], list[Sample]],
        hide: Hide,
    ) -> None:
        """`read` gives all current values in any thread; `hide` takes secrets out of a field of the log."""
        quiet()
        self._resource = resource(SERVICE, process, version)
        self._scope = InstrumentationScope(SCOPE, version)
        dropped = meters.counter("penstock_telemetry_dropped_total")
        self._spans = SpanSender(target, dropped)
        self._metrics = MetricSender(target, self._resource, self._scope, read, dropped)
        self._spans_of_runs: dict[str, TraceParent] = {}
        self._logs = LogSender(target, self._resource, self._scope, hide, self._span_of, dropped)
        LOG_LINES.export = self._logs.line
        self._sampler = TracerProvider(resource=self._resource, shutdown_on_exit=False).sampler
        self.samples = lru_cache(SAMPLED_KEPT)(self._samples)

    def _samples(self, trace_id: str, parent: TraceParent | None) -> bool:
        """Whether the trace is recorded, as OTEL_TRACES_SAMPLER says: the same in every process."""
        context = None if parent is None else set_span_in_context(remote(parent))
        decision = self._sampler.should_sample(context, int(trace_id, 16), "run").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def span(self, span: Span) -> None:
        """Export a span of a trace that is recorded."""
        self._spans.send(readable(span, self._resource, self._scope))

    def run_of_caller(self, run_id: str, span: TraceParent) -> None:
        """Have lines of the log that name this run belong to its trace, which does not follow from its id."""
        if run_id not in self._spans_of_runs:
            if len(self._spans_of_runs) >= RUNS_KEPT:
                del self._spans_of_runs[next(iter(self._spans_of_runs))]
            self._spans_of_runs[run_id] = span

    def _span_of(self, run_id: str) -> TraceParent | None:
        known = self._spans_of_runs.get(run_id)
        if known is not None or not TRACE_ID.fullmatch(run_id) or run_id == NO_TRACE:
            return known
        return TraceParent(run_id, run_id[16:])

    def close(self) -> None:
        """Send what waits, for a bounded time."""
        LOG_LINES.export = None
        within(STOP_S_MAX, self._close_all)

    def _close_all(self) -> None:
        self._spans.close()
        self._logs.close()
        self._metrics.close()
