"""One state of the service: runs and steps a second, its queues, its workers, and the runs that are held up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.client.views import RunView, TaskQueueView, WorkerView
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.waiting.reasons import WaitingReason

if TYPE_CHECKING:
    from penstock.client import Client

HELD_S = 10.0  # open for so long, a run is asked why
HELD_MAX = 10
LISTED_MAX = 100  # of each status, from which those that are asked are chosen
STORED = "\npenstock_storage_bytes "  # what the broker says itself
OPEN = ("running", "compensating", "pending")
RATES: Mapping[str, tuple[str, str]] = {
    "runs started": ("penstock_run_events_total", "started"),
    "runs completed": ("penstock_run_events_total", "completed"),
    "runs failed": ("penstock_run_events_total", "failed"),
    "steps completed": ("penstock_step_events_total", "completed"),
    "steps failed": ("penstock_step_events_total", "failed"),
}


class HeldRun(Struct, frozen=True):
    """A run that is open for a while and waits."""

    run_id: str
    workflow_id: str
    created_at: str
    waiting: list[WaitingReason]


class Observation(Struct, frozen=True):
    """`rates` are per second since the observation before; empty for the first one. `problem` is why the service did
    not answer; the rest is as it was seen last then."""

    at: float
    runs: dict[str, int] = {}
    rates: dict[str, float] = {}
    queues: list[TaskQueueView] = []
    workers: list[WorkerView] = []
    held: list[HeldRun] = []
    problem: str = ""


class Observer:
    """Owned by one call of the command. It keeps the counters of the last observation, for the rates."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._counters: dict[str, float] = {}
        self._counted_at = 0.0
        self._last = Observation(0.0)

    def observe(self) -> Observation:
        """The state now. Raises PenstockError when the service refuses; without an answer, the last state says so."""
        try:
            self._last = self._observed()
        except Unavailable as error:
            self._last = replace(self._last, at=time.time(), problem=str(error).partition("\n")[0])
        return self._last

    def _observed(self) -> Observation:
        page = self._client.metrics()
        if STORED not in page:  # each of the requests that follow would wait for it
            raise Unavailable("the broker of the service does not answer")
        counters, runs = counted(page)
        now = time.monotonic()
        passed = now - self._counted_at
        rates = (
            {name: max(0.0, (value - self._counters.get(name, value)) / passed) for name, value in counters.items()}
            if self._counted_at
            else {}
        )
        self._counters, self._counted_at = counters, now
        queues, workers = self._client.tasks(), self._client.workers()
        return Observation(time.time(), runs, rates, queues, workers, self._held())

    def _held(self) -> list[HeldRun]:
        """Runs that are open for a while, if they wait: the newest ones of every workflow."""
        before = (datetime.now(UTC) - timedelta(seconds=HELD_S)).isoformat().replace("+00:00", "Z")
        found = [run for status in OPEN for run in self._client.runs(status=status, before=before, limit=LISTED_MAX)]
        held = []
        for run in spread(found, HELD_MAX):
            try:
                waiting = self._client.explain(run.run_id).waiting
            except Unavailable:
                raise
            except PenstockError:  # it was removed meanwhile
                continue
            if waiting:
                held.append(HeldRun(run.run_id, run.workflow_id, run.created_at, waiting))
        return held


def spread(runs: Sequence[RunView], count: int) -> list[RunView]:
    """The first of each workflow, then the second of each, and so on: what holds up one does not hide the others."""
    seen = Counter[str]()
    turns = []
    for run in runs:
        turns.append(seen[run.workflow_id])
        seen[run.workflow_id] += 1
    return [runs[at] for at in sorted(range(len(runs)), key=lambda at: turns[at])[:count]]


def counted(page: str) -> tuple[dict[str, float], dict[str, int]]:
    """The counters for the rates, and the runs by status, from the metrics of all processes."""
    from prometheus_client.parser import text_string_to_metric_families

    counters, runs = dict.fromkeys(RATES, 0.0), Counter[str]()
    names = {wanted: name for name, wanted in RATES.items()}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "penstock_runs":
                runs[sample.labels["status"]] += int(sample.value)
            elif name := names.get((sample.name, sample.labels.get("event", ""))):
                counters[name] += sample.value
    return counters, dict(runs)
