"""Counting: what is told apart, and what a histogram says."""

from __future__ import annotations

from penstock.telemetry.meters import Histogram, Meters, Sample
from penstock.telemetry.metrics import LABELS_MAX, METRICS, OPEN_LABELS, OTHER


def test_a_counter_counts_by_labels() -> None:
    meters = Meters()
    counter = meters.counter("penstock_step_events_total")
    for event in ("started", "completed", "started"):
        counter.add("t", event)
    assert {("t", "started"): 2, ("t", "completed"): 1} == counter
    assert counter is meters.counter("penstock_step_events_total")


def test_values_of_an_open_label_beyond_the_bound_are_counted_as_other() -> None:
    counter = Meters().counter("penstock_step_events_total")
    for number in range(LABELS_MAX + 50):
        for event in ("started", "completed"):
            counter.add(f"task-{number}", event)
    assert 2 * (LABELS_MAX + 1) == len(counter)
    assert 50 == counter["other", "started"] == counter["other", "completed"]
    assert 2 * (LABELS_MAX + 50) == sum(counter.values())


def test_a_label_with_a_bound_of_its_own_has_no_other() -> None:
    counter = Meters().counter("penstock_http_requests_total")
    for number in range(LABELS_MAX + 50):
        counter.add(f"/route-{number}", "GET", "200")
    assert LABELS_MAX + 50 == len(counter)


def test_a_histograms_bounds_belong_to_the_bucket_below() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.2, 1.0, 5.0):
        histogram.observe(value)
    assert [2, 2, 1] == histogram.counts
    assert 6.35 == round(histogram.sum, 9)


def test_histograms_of_open_labels_are_bounded_and_the_rest_is_counted_together() -> None:
    meters = Meters()
    waits = meters.histograms("penstock_queue_wait_seconds")
    for number in range(LABELS_MAX + 50):
        waits.observe(0.01, f"t{number}")
        waits.observe(3.0, f"t{number}")
    assert waits is meters.histograms("penstock_queue_wait_seconds")
    assert LABELS_MAX + 1 == len(waits)
    assert 2 == sum(waits["t0",].counts)
    assert 100 == sum(waits[OTHER,].counts)
    found = [sample for sample in meters.samples() if sample.name == "penstock_queue_wait_seconds"]
    assert LABELS_MAX + 1 == len(found)
    assert {"task": "t7"} in [sample.labels for sample in found]


def test_samples_are_all_numbers_as_of_now() -> None:
    meters = Meters()
    room = [3.0]
    meters.counter("penstock_trigger_fires_total").add("cron")
    meters.reading("penstock_actors", lambda: room[0])
    meters.readings("penstock_partition_owner", lambda: {("7",): 1})
    meters.histogram("penstock_http_request_seconds", "/runs", "GET").observe(0.5)
    room[0] = 4.0
    found = {sample.name: sample for sample in meters.samples()}
    assert Sample("penstock_trigger_fires_total", 1, {"kind": "cron"}) == found["penstock_trigger_fires_total"]
    assert Sample("penstock_actors", 4.0) == found["penstock_actors"]
    assert Sample("penstock_partition_owner", 1, {"partition": "7"}) == found["penstock_partition_owner"]
    assert {"route": "/runs", "method": "GET"} == found["penstock_http_request_seconds"].labels
    assert 1 == sum(found["penstock_http_request_seconds"].counts or ())


def test_the_table_keeps_the_conventions_of_prometheus() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("penstock_")
        assert (metric.kind == "counter") == name.endswith("_total"), name
        assert bool(metric.bounds) == (metric.kind == "histogram"), name
        assert list(metric.bounds) == sorted(metric.bounds)
        assert not OPEN_LABELS & set(metric.labels[1:]), name
        assert not {"host", "process", "le"} & set(metric.labels), name
        assert metric.help.endswith(".")
