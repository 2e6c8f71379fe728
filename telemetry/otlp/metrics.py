"""Export of what this process counts, under the names of /metrics.

Counters and gauges are observable instruments of the SDK, read when it collects. The SDK has no histogram that can be
read, so the counts of ours are added to what it has collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock.telemetry.meters import Counter, Sample
from penstock.telemetry.metrics import METRICS
from penstock.telemetry.otlp.resource import OtlpTarget
from penstock.telemetry.otlp.sending import STOP_S_MAX, within

FRESH_S = 0.2  # all instruments are read within this time
METRIC = "otlp_metric"


class MetricSender:
    """`read` gives all current values; it is called in a thread of the SDK, every OTEL_METRIC_EXPORT_INTERVAL."""

    def __init__(
        self,
        target: OtlpTarget,
        resource: Resource,
        scope: InstrumentationScope,
        read: Callable[[], list[Sample]],
        dropped: Counter,
    ) -> None:
        self._read, self._samples, self._read_at = read, list[Sample](), 0.0
        exporter = _WithHistograms(target, resource, scope, self._current, dropped)
        reader = PeriodicExportingMetricReader(exporter)
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(scope.name, scope.version)
        for metric in METRICS.values():
            if metric.of == "process" and metric.kind != "histogram":
                make = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
                make(metric.name, [self._callback(metric.name)], description=metric.help)

    def close(self) -> None:
        """Send the last values, for STOP_S_MAX at most."""
        within(STOP_S_MAX, self._provider.shutdown)

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            return (Observation(one.value, one.labels) for one in self._current() if one.name == name)

        return observe

    def _current(self) -> list[Sample]:
        if time.monotonic() - self._read_at > FRESH_S:
            self._samples, self._read_at = self._read(), time.monotonic()
        return self._samples


class _WithHistograms(OTLPMetricExporter):
    """Adds our histograms, which count from the start of the process on."""

    def __init__(
        self,
        target: OtlpTarget,
        resource: Resource,
        scope: InstrumentationScope,
        read: Callable[[], list[Sample]],
        dropped: Counter,
    ) -> None:
        super().__init__(endpoint=target.of("metrics"), headers=dict(target.headers) or None)
        self._resource, self._scope, self._current, self._dropped = resource, scope, read, dropped
        self._began = time.time_ns()

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: object
    ) -> MetricExportResult:
        result = super().export(self._with_histograms(metrics_data), timeout_millis)
        if result is not MetricExportResult.SUCCESS:
            self._dropped.add(METRIC)
        return result

    def _with_histograms(self, collected: MetricsData) -> MetricsData:
        """In one scope of one resource: of two that are equal the SDK sends the last one only."""
        ours = list(self._histograms([one for one in self._current() if one.counts is not None]))
        scopes = [scope for part in collected.resource_metrics for scope in part.scope_metrics]
        others = [metric for scope in scopes for metric in scope.metrics]
        scope = ScopeMetrics(self._scope, [*others, *ours], "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _histograms(self, samples: Sequence[Sample]) -> Iterator[Metric]:
        now = time.time_ns()
        for name in {one.name: None for one in samples}:
            points = [self._point(one, now) for one in samples if one.name == name]
            yield Metric(name, METRICS[name].help, "", Histogram(points, AggregationTemporality.CUMULATIVE))

    def _point(self, sample: Sample, now: int) -> HistogramDataPoint:
        counts, bounds = sample.counts or [], METRICS[sample.name].bounds
        unknown = cast(float, None)  # the least and the greatest value; OTLP has them as optional
        return HistogramDataPoint(
            sample.labels, self._began, now, sum(counts), sample.value, counts, bounds, unknown, unknown
        )
