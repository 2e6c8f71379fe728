#!/usr/bin/env python3
"""What one increment, one observation and one page cost: telemetry/meters.py beside prometheus_client.

docs/adr/0019-meters.md rests on it. Prints nanoseconds, the best of several repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from timeit import repeat

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from penstock.broker.streams.telemetry import ProcessReport
from penstock.http.system.metric_pages import MetricPages
from penstock.telemetry.meters import Meters
from penstock.telemetry.metrics import METRICS

CALLS = 200_000
REPEATS = 7
LABELS = 100
COUNTER = next(one.name for one in METRICS.values() if one.kind == "counter" and len(one.labels) == 1)
HISTOGRAM = next(one.name for one in METRICS.values() if one.kind == "histogram" and len(one.labels) == 1)
BOUNDS = METRICS[HISTOGRAM].bounds


def main() -> None:
    meters, registry = Meters(), CollectorRegistry()
    counter, histograms = meters.counter(COUNTER), meters.histograms(HISTOGRAM)
    histogram = meters.histogram(HISTOGRAM, "kept")
    their_counter = Counter("counter", "about", ["label"], registry=registry)
    their_histogram = Histogram("histogram", "about", ["label"], registry=registry, buckets=BOUNDS)
    kept_counter, kept_histogram = their_counter.labels("kept"), their_histogram.labels("kept")
    _show("an empty call", _ns(lambda: None))
    _show("counter, ours", _ns(lambda: counter.add("a")))
    _show("counter, library", _ns(lambda: their_counter.labels("a").inc()))
    _show("counter, library, its child kept", _ns(lambda: kept_counter.inc()))
    _show(f"histogram of {len(BOUNDS)} bounds, ours", _ns(lambda: histograms.observe(0.3, "a")))
    _show(f"histogram of {len(BOUNDS)} bounds, library", _ns(lambda: their_histogram.labels("a").observe(0.3)))
    _show("histogram, ours, kept", _ns(lambda: histogram.observe(0.3)))
    _show("histogram, library, its child kept", _ns(lambda: kept_histogram.observe(0.3)))
    for number in range(LABELS):
        counter.add(f"l{number}")
        histograms.observe(0.3, f"l{number}")
        their_counter.labels(f"l{number}").inc()
        their_histogram.labels(f"l{number}").observe(0.3)
    report = ProcessReport("shard-1", "host", 1, "life", "", meters.samples())
    _show(f"numbers of {LABELS} labels as they are sent, ours", _ns(meters.samples, calls=20))
    _show(f"page of {LABELS} labels, ours", _ns(lambda: MetricPages().page([report], []), calls=5))
    _show(f"page of {LABELS} labels, library", _ns(lambda: generate_latest(registry), calls=5))


def _ns(call: Callable[[], object], calls: int = CALLS) -> float:
    return min(repeat(call, number=calls, repeat=REPEATS)) / calls * 1e9


def _show(what: str, ns: float) -> None:
    print(f"{what:55} {ns:12,.0f} ns")


if __name__ == "__main__":
    main()
