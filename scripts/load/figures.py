"""Figures about a load: latencies as percentiles, runs per second over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

BARS = "▁▂▃▄▅▆▇█"
SPARKS_MAX = 60


class Percentiles(Struct, frozen=True):
    """In milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values in ascending order; NaN of none."""
    if not values:
        return math.nan
    return values[max(0, math.ceil(share * len(values)) - 1)]


def percentiles(seconds: Sequence[float]) -> Percentiles | None:
    """None of no values."""
    if not seconds:
        return None
    values = sorted(seconds)
    p50, p90, p99, most = (round(percentile(values, share) * 1000, 3) for share in (0.5, 0.9, 0.99, 1.0))
    return Percentiles(len(values), p50, p90, p99, most)


def per_second(moments: Sequence[float], begin: float) -> list[int]:
    """How many of these moments fell into each second since `begin`."""
    counts = Counter(int(moment - begin) for moment in moments if moment >= begin)
    return [counts[second] for second in range(max(counts, default=-1) + 1)]


def sparkline(values: Sequence[float]) -> str:
    """One character a value, neighbours averaged when there are too many."""
    width = math.ceil(len(values) / SPARKS_MAX) or 1
    means = [sum(values[at : at + width]) / len(values[at : at + width]) for at in range(0, len(values), width)]
    most = max(means, default=0.0) or 1.0
    return "".join(BARS[min(int(mean / most * len(BARS)), len(BARS) - 1)] for mean in means)
