"""Pages of metrics: the texts that are kept from the last page say what a new page would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker.streams.telemetry import ProcessReport
from penstock.http.system import metric_pages
from penstock.http.system.metric_pages import FORMATS_MAX, TEXT, MetricPages, accepted
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


@given(st.lists(SCRAPES, max_size=5))
def test_a_page_is_as_one_that_is_written_anew(
    scrapes: list[tuple[list[ProcessReport], list[Sample], metric_pages.Format]],
) -> None:
    pages = MetricPages()
    for found, of_service, wanted in scrapes:
        page = pages.page(found, of_service, wanted)
        assert MetricPages().page(found, of_service, wanted) == page
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
