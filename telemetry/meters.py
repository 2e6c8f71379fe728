"""Metrics of one process: counters and histograms that are updated in place and read on request.

Code that counts gets its counter or histogram once and keeps it; an increment then costs a dictionary access, an
observation one bisection. Names and labels are those of the table in telemetry/metrics.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from penstock.telemetry.metrics import LABELS_MAX, METRICS, OPEN_LABELS, OTHER, Metric

Labels: TypeAlias = tuple[str, ...]


class Sample(Struct, frozen=True, omit_defaults=True):
    """One value in its stored form. A histogram has the counts of its buckets, the last one unbounded; `value` is its
    sum."""

    name: str
    value: float
    labels: dict[str, str] = {}
    counts: list[int] | None = None


class Counter(dict[Labels, float]):
    """A count for each combination of labels. Of an unbounded label, the first LABELS_MAX values are kept apart."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._open = bool(metric.labels) and metric.labels[0] in OPEN_LABELS
        self._seen: set[str] = set()

    def add(self, *labels: str) -> None:
        """Count one more."""
        try:
            self[labels] += 1
        except KeyError:
            self._add_new(labels)

    def _add_new(self, labels: Labels) -> None:
        if self._open and labels[0] not in self._seen:
            if len(self._seen) < LABELS_MAX:
                self._seen.add(labels[0])
            else:
                labels = (OTHER, *labels[1:])
        self[labels] = self.get(labels, 0) + 1


class Histogram:
    """`counts[n]` are the observations up to `bounds[n]`; the last count is of those beyond all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Histograms(dict[Labels, Histogram]):
    """Histograms of one name, by labels, of which as many are kept apart as by a Counter."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._bounds = metric.bounds
        self._seen: set[str] = set()

    def observe(self, value: float, *labels: str) -> None:
        """Add one observation."""
        found = self.get(labels) or self._new(labels)
        found.counts[bisect_left(self._bounds, value)] += 1
        found.sum += value

    def _new(self, labels: Labels) -> Histogram:
        if labels[0] not in self._seen:
            if len(self._seen) < LABELS_MAX:
                self._seen.add(labels[0])
            else:
                labels = (OTHER, *labels[1:])
        return self.setdefault(labels, Histogram(self._bounds))


class Meters:
    """All metrics of one process. Each Store has one, as long as the process lives."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._open_histograms: dict[str, Histograms] = {}
        self._readings: dict[tuple[str, Labels], Callable[[], float]] = {}
        self._labelled: dict[str, Callable[[], Mapping[Labels, float]]] = {}

    def counter(self, name: str) -> Counter:
        """The counter of this name, the same one every time."""
        if name not in self._counters:
            self._counters[name] = Counter(METRICS[name])
        return self._counters[name]

    def histogram(self, name: str, *labels: str) -> Histogram:
        """The histogram of this name and these labels, the same one every time. The caller bounds the labels."""
        key = name, labels
        if key not in self._histograms:
            self._histograms[key] = Histogram(METRICS[name].bounds)
        return self._histograms[key]

    def histograms(self, name: str) -> Histograms:
        """All histograms of this name, the same ones every time, for labels that have no bound of their own."""
        if name not in self._open_histograms:
            self._open_histograms[name] = Histograms(METRICS[name])
        return self._open_histograms[name]

    def reading(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """Have `read` called for the value on request. A later one of the same name and labels replaces it."""
        self._readings[name, labels] = read

    def readings(self, name: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """As `reading`, for all combinations of labels at once, which may change."""
        self._labelled[name] = read

    def samples(self) -> list[Sample]:
        """All current values."""
        found = [_histogram(name, labels, one) for (name, labels), one in self._histograms.items()]
        found += [
            _histogram(name, labels, one)
            for name, many in self._open_histograms.items()
            for labels, one in many.items()
        ]
        return [*self._plain(), *found]

    def _plain(self) -> Iterator[Sample]:
        for name, counter in self._counters.items():
            yield from (_sample(name, labels, value) for labels, value in counter.items())
        for (name, labels), read in self._readings.items():
            yield _sample(name, labels, read())
        for name, read_all in self._labelled.items():
            yield from (_sample(name, labels, value) for labels, value in read_all().items())


def _sample(name: str, labels: Labels, value: float) -> Sample:
    return Sample(name, value, dict(zip(METRICS[name].labels, labels, strict=True)))


def _histogram(name: str, labels: Labels, found: Histogram) -> Sample:
    return Sample(name, found.sum, dict(zip(METRICS[name].labels, labels, strict=True)), list(found.counts))
