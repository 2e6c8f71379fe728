"""/metrics: the metrics of every process of the service, and of the broker, in the format of Prometheus.

Any front end serves all of them: it asks every process over the broker, and waits for those that answered the last
time, for a moment at most. Missing answers are left out; there is always a response, also without a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate

from falcon.asgi import Request, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.registry import Collector

from penstock.broker import names
from penstock.broker.inspection.consumer_list import consumers_of
from penstock.broker.store import Store
from penstock.broker.streams import stats
from penstock.broker.streams.provisioning import streams
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.limits import PARTITIONS
from penstock.config.process.background import both, each_of
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.run.kinds.table import queues
from penstock.http.backend import Backend
from penstock.http.system.storage import storage
from penstock.telemetry.meters import Sample
from penstock.telemetry.metrics import METRICS, Metric

ANSWERS_S_MAX = 0.3
BROKER_S_MAX = 2.0


class Metrics:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The metrics of the whole service in Prometheus' text format, or as OpenMetrics if that is requested."""
        (reports, about), samples = await both(_answers(self._backend), _samples(self._backend))
        write, resp.content_type = _format(req.get_header("Accept") or "")
        resp.set_header("Vary", "Accept")
        resp.data = exposition(reports, [*samples, *about], write)


def _format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The format that the client accepts; the text format by default, which every scraper reads."""
    write, content_type = choose_encoder(accept)
    return (write, content_type) if "openmetrics" in content_type else (generate_latest, CONTENT_TYPE_PLAIN_0_0_4)


async def _answers(backend: Backend) -> tuple[list[ProcessReport], list[Sample]]:
    """The reports of every process that answers in time, and of this one; and metrics of the service made from them."""
    own = backend.numbers.reports()
    try:
        others = await backend.store.telemetry.ask_known(ANSWERS_S_MAX)
    except Unavailable:
        return own, [Sample("penstock_processes", len(own))]
    reports = {report.life: report for report in [*others, *own]}
    return list(reports.values()), _about(reports.values())


async def _samples(backend: Backend) -> list[Sample]:
    """Metrics of the service as a whole, without those for which the broker does not answer in time."""
    found = _runs(backend)
    try:
        store = backend.store
        async with asyncio.timeout(BROKER_S_MAX):
            parts = _storage(backend, store), _streams(backend, store), _queues(store), _engines(store)
            for part in await each_of(parts):
                if isinstance(part, list):
                    found += part
                elif not isinstance(part, PenstockError):
                    raise part
    except (Unavailable, TimeoutError):
        pass
    return found


def _runs(backend: Backend) -> list[Sample]:
    try:
        totals = backend.index.totals()
    except Unavailable:
        return []
    return [
        Sample("penstock_runs", runs, {"workflow": workflow, "status": status})
        for (workflow, status), runs in totals.items()
    ]


async def _storage(backend: Backend, store: Store) -> list[Sample]:
    used, limit = await storage(store, backend.settings)
    samples = [Sample("penstock_storage_bytes", used)]
    return samples if limit is None else [*samples, Sample("penstock_storage_limit_bytes", limit)]


async def _streams(backend: Backend, store: Store) -> list[Sample]:
    found = await stats.streams(store.broker, [one["name"] for one in streams(backend.settings)])
    samples = list[Sample]()
    for name, stream in found.items():
        samples.append(Sample("penstock_stream_messages", stream.messages, {"stream": name}))
        samples.append(Sample("penstock_stream_bytes", stream.bytes, {"stream": name}))
    if names.HISTORY in found:
        samples.append(
            Sample(
                "penstock_run_index_lag_messages", max(0, found[names.HISTORY].last_seq - backend.index.progress().seq)
            )
        )
    return samples


async def _engines(store: Store) -> list[Sample]:
    view, consumers = await both(store.owners.read(), consumers_of(store.broker, names.HISTORY))
    current = {claimed.claim.consumer for claimed in view.claims.values()}
    behind = sum(one.progress.pending for one in consumers if one.name in current)
    return [Sample("penstock_engine_lag_messages", behind)]


async def _queues(store: Store) -> list[Sample]:
    async def types() -> set[tuple[str, str | None]]:
        return {queue for one in await store.definitions.all() for step in one.steps for queue in queues(step)}

    found = await stats.queues(store.broker, store.reader, types)
    samples = [
        Sample("penstock_queue_unclaimed_tasks", count, {"task": task}) for task, count in found.unclaimed.items()
    ]
    for task, queue in found.by_task.items():
        samples.append(Sample("penstock_queue_tasks", queue.waiting, {"task": task, "state": "waiting"}))
        samples.append(Sample("penstock_queue_tasks", queue.delivered, {"task": task, "state": "delivered"}))
        if queue.oldest_s is not None:
            samples.append(Sample("penstock_queue_oldest_seconds", queue.oldest_s, {"task": task}))
    return samples


def _about(reports: Collection[ProcessReport]) -> list[Sample]:
    samples = [sample for report in reports for sample in report.metrics if sample.name == "penstock_partition_owner"]
    owned = {sample.labels.get("partition") for sample in samples if sample.value}
    return [Sample("penstock_processes", len(reports)), Sample("penstock_partitions_unowned", PARTITIONS - len(owned))]


def exposition(
    reports: Iterable[ProcessReport], samples: Iterable[Sample], write: Callable[[Collector], bytes] = generate_latest
) -> bytes:
    """The page: each process's metrics with its name and host, and those of the service. Samples with equal labels are
    added."""
    sums: dict[str, dict[tuple[str, ...], Sample]] = {name: {} for name in METRICS}
    for sample in samples:
        _add(sums, sample, ())
    for report in reports:
        for sample in report.metrics:
            _add(sums, sample, (report.host, report.process))
    return write(_Page(sums))


def _add(sums: dict[str, dict[tuple[str, ...], Sample]], sample: Sample, owner: tuple[str, ...]) -> None:
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


class _Page(Collector):
    """Formats samples with the Prometheus library."""

    def __init__(self, sums: dict[str, dict[tuple[str, ...], Sample]]) -> None:
        self._sums = sums

    def collect(self) -> Iterator[Family]:
        for name, found in self._sums.items():
            if found:
                yield _family(METRICS[name], found)


def _family(metric: Metric, found: dict[tuple[str, ...], Sample]) -> Family:
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
