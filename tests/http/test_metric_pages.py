"""Pages of metrics: the texts that are kept from the last page say what the library would write now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from penstock.broker.streams.telemetry import ProcessReport
from penstock.http.system import metric_pages
from penstock.http.system.metric_pages import FORMATS_MAX, TEXT, Format, MetricPages, accepted
from penstock.telemetry.meters import Sample
from penstock.telemetry.metrics import METRICS

OPENMETRICS = accepted("application/openmetrics-text; version=1.0.0")
NAMES = st.sampled_from(sorted(METRICS))
TEXTS = st.sampled_from(["a", "b", 'o"d\\d\n', "é # EOF\n", "\r# HELP", ""])
COUNTS = st.sampled_from([0, 1, 7])


@st.composite
def samples(draw: st.DrawFn, of: str) -> Sample:
    metric = METRICS[draw(NAMES.filter(lambda name: METRICS[name].of == of))]
    labels = {label: draw(TEXTS) for label in metric.labels}
    counts = [draw(COUNTS)] * (len(metric.bounds) + 1) if metric.kind == "histogram" else None
    return Sample(metric.name, draw(COUNTS), labels, counts)


def reports() -> st.SearchStrategy[ProcessReport]:
    metrics = st.lists(samples(of="process"), max_size=8)
    return st.builds(
        ProcessReport, TEXTS, TEXTS, st.just(1), st.uuids().map(str), st.just("2026-01-01T00:00:00Z"), metrics
    )


SCRAPES = st.tuples(
    st.lists(reports(), max_size=3), st.lists(samples(of="service"), max_size=5), st.sampled_from([TEXT, OPENMETRICS])
)


class Whole(Collector):
    """All metrics at once."""

    def __init__(self, found: Sequence[ProcessReport], of_service: Sequence[Sample]) -> None:
        self._sums = metric_pages._sums(found, of_service)

    def collect(self) -> Iterator[Family]:
        for name, samples_of in self._sums.items():
            if samples_of:
                yield metric_pages._family(METRICS[name], samples_of)


@given(st.lists(SCRAPES, max_size=5))
def test_a_page_is_as_the_library_writes_it_as_a_whole(
    scrapes: list[tuple[list[ProcessReport], list[Sample], Format]],
) -> None:
    pages = MetricPages()
    for found, of_service, wanted in scrapes:
        page = pages.page(found, of_service, wanted)
        assert wanted.write(Whole(found, of_service)) == page
        if wanted is TEXT:
            list(text_string_to_metric_families(page.decode()))
        else:
            list(openmetrics_families(page.decode()))  # which also refuses a page with two ends


def test_what_has_changed_is_written_again() -> None:
    pages, report = MetricPages(), ProcessReport("p", "h", 1, "l", "", [])
    for value in (1, 2, 2, 3):
        page = pages.page([report], [Sample("penstock_processes", value)]).decode()
        assert f"penstock_processes {value:.1f}" in page.splitlines()
    assert b"" == pages.page([report], []).strip()


def test_texts_are_kept_of_a_few_formats_only() -> None:
    pages = MetricPages()
    for version in range(10):
        wanted = accepted(f"application/openmetrics-text; version=1.0.{version}")
        assert pages.page([], [Sample("penstock_processes", 1)], wanted).endswith(b"# EOF\n")
        assert len(pages._kept) <= FORMATS_MAX
