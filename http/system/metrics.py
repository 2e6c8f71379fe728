"""/metrics: the metrics of every process of the service, and of the broker, in the format of Prometheus.

Any front end serves all of them: it asks every process over the broker, and waits for those that answered the last
time, for a moment at most. Missing answers are left out; there is always a response, also without a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from falcon.asgi import Request, Response

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
from penstock.http.system.metric_pages import MetricPages, accepted
from penstock.http.system.storage import storage
from penstock.telemetry.meters import Sample

ANSWERS_S_MAX = 0.3
BROKER_S_MAX = 2.0


class Metrics:
    def __init__(self, backend: Backend) -> None:
        self._backend, self._pages = backend, MetricPages()

    async def on_get(self, req: Request, resp: Response) -> None:
        """The metrics of the whole service in Prometheus' text format, or as OpenMetrics if that is requested."""
        (reports, about), samples = await both(_answers(self._backend), _samples(self._backend))
        wanted = accepted(req.get_header("Accept") or "")
        resp.content_type = wanted.content_type
        resp.set_header("Vary", "Accept")
        resp.data = self._pages.page(reports, [*samples, *about], wanted)


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
