"""The page of metrics, written by the Prometheus library in the format that the client accepts.

Writing takes longer than all else: 100 workflows are 3,000 lines. Most samples are the same at the next scrape, so the
text of each is kept until it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.registry import Collector

from penstock.broker.streams.telemetry import ProcessReport
from penstock.telemetry.meters import Sample
from penstock.telemetry.metrics import METRICS, Metric

FORMATS_MAX = 3  # of which texts are kept: clients may name any version of OpenMetrics
OPENMETRICS_END = b"# EOF\n"

Labels: TypeAlias = tuple[str, ...]
Found: TypeAlias = dict[Labels, Sample]
Texts: TypeAlias = dict[tuple[str, Labels], tuple[Sample, bytes]]


class Format(NamedTuple):
    write: Callable[[Collector], bytes]
    content_type: str

    @property
    def end(self) -> bytes:
        """What stands behind the last line of a page."""
        return OPENMETRICS_END if "openmetrics" in self.content_type else b""


TEXT = Format(generate_latest, CONTENT_TYPE_PLAIN_0_0_4)


def accepted(accept: str) -> Format:
    """The format that the client accepts; the text format by default, which every scraper reads."""
    found = Format(*choose_encoder(accept))
    return found if found.end else TEXT


class MetricPages:
    """Writes pages, and keeps the texts of the last page of each format that is in use. Owned by the resource."""

    def __init__(self) -> None:
        self._kept: dict[str, Texts] = {}

    def page(self, reports: Iterable[ProcessReport], samples: Iterable[Sample], wanted: Format = TEXT) -> bytes:
        """Each process's metrics with its name and host, and those of the service. Samples with equal labels are
        added."""
        kept, texts = self._kept.pop(wanted.content_type, {}), Texts()
        parts: list[bytes] = []
        for name, found in _sums(reports, samples).items():
            parts += _texts(METRICS[name], found, wanted, kept, texts)
        self._kept[wanted.content_type] = texts
        if len(self._kept) > FORMATS_MAX:
            del self._kept[next(iter(self._kept))]
        return b"".join((*parts, wanted.end))


def _texts(metric: Metric, found: Found, wanted: Format, kept: Texts, texts: Texts) -> Iterator[bytes]:
    """The text of a metric in pieces: what is said of it, and its samples, which are added to `texts`. Nothing without
    a sample."""
    if not found:
        return
    head = _written(metric, {}, wanted)
    yield head
    for labels, sample in found.items():
        key = metric.name, labels
        one = kept.get(key)
        if one is None or one[0] != sample:
            one = sample, _written(metric, {labels: sample}, wanted)[len(head) :]
        texts[key] = one
        yield one[1]


def _written(metric: Metric, found: Found, wanted: Format) -> bytes:
    return wanted.write(_One(_family(metric, found))).removesuffix(wanted.end)


def _sums(reports: Iterable[ProcessReport], samples: Iterable[Sample]) -> Mapping[str, Found]:
    sums: dict[str, Found] = {name: {} for name in METRICS}
    for sample in samples:
        _add(sums, sample, ())
    for report in reports:
        for sample in report.metrics:
            _add(sums, sample, (report.host, report.process))
    return sums


def _add(sums: dict[str, Found], sample: Sample, owner: Labels) -> None:
    """Add a sample, unless it does not match the table: then another version has sent it."""
    metric = METRICS.get(sample.name)
    if (
        metric is None
        or sample.labels.keys() != set(metric.labels)
        or not _fits(metric, sample)
        or (metric.of == "process") != bool(owner)
    ):
        return
    labels = (*owner, *(sample.labels[label] for label in metric.labels))
    before = sums[metric.name].get(labels)
    sums[metric.name][labels] = sample if before is None else _sum(before, sample)


def _fits(metric: Metric, sample: Sample) -> bool:
    return len(sample.counts or ()) == (len(metric.bounds) + 1 if metric.kind == "histogram" else 0)


def _sum(one: Sample, other: Sample) -> Sample:
    counts = [a + b for a, b in zip(one.counts or (), other.counts or (), strict=True)]
    return Sample(one.name, one.value + other.value, one.labels, counts or None)


class _One(Collector):
    """Formats one metric with the Prometheus library."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _family(metric: Metric, found: Found) -> Family:
    labels = (*(("host", "process") if metric.of == "process" else ()), *metric.labels)
    match metric.kind:
        case "counter":
            counter = CounterMetricFamily(metric.name, metric.help, labels=labels)
            for values, sample in found.items():
                counter.add_metric(values, sample.value)
            return counter
        case "gauge":
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=labels)
            for values, sample in found.items():
                gauge.add_metric(values, sample.value)
            return gauge
        case "histogram":
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
            for values, sample in found.items():
                histogram.add_metric(values, _buckets(metric, sample), sample.value)
            return histogram


def _buckets(metric: Metric, sample: Sample) -> list[tuple[str, float]]:
    assert sample.counts is not None
    bounds = [*map(str, metric.bounds), "+Inf"]
    return list(zip(bounds, accumulate(sample.counts), strict=True))
