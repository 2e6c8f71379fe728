"""Numbers of runs from the newest one backwards: a span of time after the other, until a time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from penstock.actors.index.queries import RunQuery

ROWS_FIRST = 2000  # of each sorted list, in the first span: so many are counted in any case, in some ms
SHARE_MAX = 0.1  # of the time: a span that takes less is followed by one of twice as many rows


class BackwardCount:
    """The runs of a query by the begin of their bucket (us) and by status: of those that were created from `since` (us)
    on. Belongs to one transaction, as the query does."""

    def __init__(self, query: RunQuery, ends: tuple[int, int], width: int | None) -> None:
        """`ends` hold all runs of the query, `width` is that of the buckets (us); None: one, that begins at the first
        end."""
        self.buckets: dict[int, Counter[str]] = {}
        self._query, self._width = query, width
        self._first, self.since = ends[0], ends[1] + 1
        self._rows = ROWS_FIRST

    @property
    def is_complete(self) -> bool:
        return self.since <= self._first

    def go_on(self, end: float, clock: Callable[[], float]) -> None:
        """Count older runs until the clock shows `end`. An interrupted query leaves what was counted before."""
        quick_s = (end - clock()) * SHARE_MAX
        while not self.is_complete and (begun := clock()) < end:
            self.step()
            if clock() - begun < quick_s:
                self._rows *= 2

    def step(self) -> None:
        """Count the runs of the next span: all of them, or none if the query is interrupted."""
        rest, last = self._query.within(self._first, self.since - 1), self.since - 1
        if self._width is None and self._query.is_kept:
            first, span = self._first, self._query
        else:
            reach = rest.reach(self._rows)
            first = self._first if reach is None else reach
            span = rest.within(first, last)
        for status, edge, runs in list(self._counts(span, first, last)):
            if runs:
                self.buckets.setdefault(edge, Counter())[status] += runs
        self.since = first

    def _counts(self, span: RunQuery, first: int, last: int) -> Iterator[tuple[str, int, int]]:
        if self._width is None:
            return ((status, self._first, runs) for status, runs in span.totals())
        return span.counts(range(first // self._width * self._width, last + 1, self._width), self._width)
