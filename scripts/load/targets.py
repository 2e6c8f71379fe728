"""The rows of the benchmark's table, and what each must reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """`more`: more is better. A row without targets is there to explain the others."""

    text: str
    unit: str
    must: float | None = None
    aim: float | None = None
    more: bool = True

    def reaches(self, value: float, target: float) -> bool:
        return value >= target if self.more else value <= target

    def verdict(self, value: float) -> str:
        """`aim`, `must`, `missed`, or nothing without targets."""
        if self.aim is not None and self.reaches(value, self.aim):
            return "aim"
        if self.must is None:
            return ""
        return "must" if self.reaches(value, self.must) else "missed"


ROWS: Mapping[str, Row] = {
    "bulk": Row("three-step runs by /runs/bulk, until all are completed", "runs/s", 1400, 2300),
    "bulk-lag": Row("the same, index behind the log in bulk, the worst", "s", 2, 0.5, more=False),
    "bulk-accept": Row("/runs/bulk acceptance, without a worker", "runs/s", 15_000, 30_000),
    "latency-p50": Row("one run at a time, POST to workflow.completed seen, p50", "ms", 4, 2.5, more=False),
    "latency-p99": Row("the same, p99", "ms", 12, 6, more=False),
    "latency-post": Row("the same, POST to its answer, p50", "ms", more=False),
    "latency-publishes": Row("the same p50, in bare publishes with acknowledgement", "publishes", 20, 15, more=False),
    "publish": Row("a publish with acknowledgement, one at a time before and after, p50", "ms", more=False),
    "step-to-step": Row("step completed to the start of the next step, p50", "ms", 1.0, 0.6, more=False),
    "closed-16": Row("closed loop over HTTP, 16 at a time", "runs/s", 700, 1500),
    "closed-64": Row("closed loop over HTTP, 64 at a time", "runs/s", 700, 1500),
    "closed-16-log": Row("16 at a time, ends seen in the log instead of over HTTP", "runs/s"),
    "closed-64-log": Row("64 at a time, ends seen in the log instead of over HTTP", "runs/s"),
    "call-p50": Row("a call of one step, one at a time, until its answer, p50", "ms", 4, 2.5, more=False),
    "call-p99": Row("the same, p99", "ms", 12, 6, more=False),
    "call-64": Row("the same, 64 at a time", "calls/s", 900, 1500),
    "call-64-p50": Row("the same, p50", "ms", more=False),
    "client-64": Row("runs by AsyncClient, 64 at a time, to the same by bare HTTP", "ratio", 0.7, 0.9),
    "client-64-runs": Row("the same runs by AsyncClient", "runs/s"),
    "dev-reload": Row("penstock dev: a save, until the new code has answered a task, p50", "ms", 1000, 300, more=False),
    "dev-reload-most": Row("the same, the longest", "ms", more=False),
    "event-p50": Row("10,000 runs wait, an event at a time, until its run has moved, p50", "ms", 10, 4, more=False),
    "event-p99": Row("the same, p99", "ms", more=False),
    "event-steady-p50": Row("the same, 1,000 events a second, p50", "ms", 10, 4, more=False),
    "event-steady-p99": Row("the same, p99", "ms", more=False),
    "events-64": Row("the same, 64 at a time", "events/s", 1000, 3000),
    "explain-p50": Row("100,000 runs wait, why one of them does, p50", "ms", 10, 4, more=False),
    "explain-p99": Row("the same, p99", "ms", 30, 10, more=False),
    "asleep-100k": Row("memory of the service with 100,000 runs asleep", "MB", 600, 300, more=False),
    "idle-asleep": Row("CPU of the service while nothing happens, with 100,000 runs asleep", "% of a core", more=False),
    "asleep-p99": Row("10,000 more, due within 1 s: from its time to the run's end, p99", "ms", 2000, 700, more=False),
    "asleep-timer": Row("the same, from its time to its timer in the log, p99", "ms", more=False),
    "expressions": Row("CPU of a step with when and with, more than without", "µs", 60, 30, more=False),
    "bulk-on-50k": Row("bulk on a store with 50,000 finished runs, to an empty one", "ratio", 0.9, 1.0),
    "bulk-queue": Row("100,000 runs by /runs/bulk, runs/s to those of 20,000", "ratio", 0.8, 0.95),
    "parked-100k": Row("memory of the service with 100,000 runs parked", "MB", 600, 300, more=False),
    "parked-200k": Row("memory of the service with 200,000 runs parked", "MB", 1000, more=False),
    "idle-100k": Row("CPU of the service while nothing happens, with 100,000 runs parked", "% of a core", more=False),
    "idle-200k": Row(
        "CPU of the service while nothing happens, with 200,000 runs parked", "% of a core", 3, more=False
    ),
    "idle-bound": Row(
        "the same, 20,000 runs that are bound to a worker and have a checkpoint", "% of a core", 3, more=False
    ),
    "start": Row("serve to /ready on an empty directory", "s", 1.5, 0.8, more=False),
    "fsync-always": Row("bulk with fsync = always", "runs/s", 150, 500),
    "bridge-p50": Row("over the bridge: one run at a time, POST to workflow.completed seen, p50", "ms", 6, more=False),
    "bridge-16": Row("over the bridge: closed loop over HTTP, 16 at a time", "runs/s", 500),
    "bridge-16-log": Row("over the bridge: 16 at a time, ends seen in the log instead of over HTTP", "runs/s"),
    "two-shards": Row("bulk with two shards, to bulk with one", "ratio", 1.0),
    "scaling-1": Row("bulk with one shard process that has 15 % of a core", "runs/s"),
    "scaling-2": Row("the same with two, runs/s of each to those of the one", "ratio", 0.9, 1.0),
    "scaling-4": Row("the same with four", "ratio", 0.9, 1.0),
    "scaling-used": Row("the same, of their shares that the shards have used, at least", "%"),
    "burst": Row("5,000 eleven-step sticky runs by /runs/bulk, until none is open", "runs/s"),
    "sticky": Row("the same, to the same for any worker: time of the drain", "ratio", 1.1, more=False),
    "burst-answered": Row("GET /runs?limit=1 asked every second meanwhile: answered with 200", "%", 100),
    "burst-slowest": Row("the same, the slowest answer", "ms", 200, more=False),
    "burst-lag": Row("the same, how far behind its index said to be at most", "s", 2, more=False),
    "killed-ready": Row("10,000 runs in flight, all of the service killed at once, to /ready again", "s", more=False),
    "killed-moving": Row("the same, until each of these runs has moved on", "s", 20, more=False),
    "scheduled-p99": Row("10,000 runs scheduled for one instant, start after it, p99", "ms", 2000, more=False),
    "scheduled-accept": Row("the same, scheduled by single requests, 64 at a time", "runs/s"),
    "map": Row("a map of 10,000 elements, first dispatch to step completed", "s", 3.5, 2, more=False),
    "map-ratio": Row("CPU of the service an element: a map of 10,000, to maps of 100", "ratio", 1.2, 1.0, more=False),
    "map-snapshot": Row("snapshot of a map of 10,000 whose last element runs", "KB", 400, 200, more=False),
    "map-bulk": Row("20,000 runs by /runs/bulk with a map of 10 each", "elements/s", 5000, 9000),
    "children": Row(
        "1,000 children of one map, a step each, from the start of the run to its end", "s", 2, 1, more=False
    ),
    "rerun": Row("1,000 runs started again in one request, until the answer", "s", 1.5, 0.8, more=False),
    "rerun-from": Row("the same, from their last of 3 steps", "s", 1.5, 0.8, more=False),
    "rerun-from-end": Row("the same, until all of them have completed", "s", more=False),
    "prune": Row("2,000 completed runs removed, 1,000 a request", "runs/s"),
    "prune-bulk": Row("bulk beside such a removal, to one beside nothing", "ratio"),
    "otel": Row("CPU of the service for a bulk that exports its traces, to one that does not", "ratio", more=False),
    "pause": Row("1,000 runs with a queued task paused in one request, until the answer", "s", 1, 0.4, more=False),
    "pause-withdrawn": Row("the same, until none of their tasks is queued", "s", more=False),
    "resume": Row("the same runs go on in one request, until the answer", "s", 1, 0.4, more=False),
    "resume-queued": Row("the same, until all of their tasks are queued", "s", more=False),
    "cancel-p50": Row("a run is cancelled, until the function of its step knows, p50", "ms", 20, 5, more=False),
    "cancel-p99": Row("the same, p99", "ms", more=False),
    "cancel-bridge-p50": Row("the same over the bridge, p50", "ms", 20, 5, more=False),
    "cancel-bridge-p99": Row("the same, p99", "ms", more=False),
    "travel-first": Row("a run of 10,000 events as it was just before its end, first", "ms", 150, 50, more=False),
    "travel": Row("the same, asked for again", "ms", 150, 50, more=False),
    "travel-anywhere": Row("the same run as it was at sequences all over it, median", "ms", 150, 50, more=False),
    "label-half-p50": Row("100 of 1,000,000 runs by a label that half of them have, p50", "ms", 15, 5, more=False),
    "label-half-p99": Row("the same, p99", "ms", 60, 20, more=False),
    "label-many-p50": Row("the same, by a label of 10,000 values, p50", "ms", 15, 5, more=False),
    "label-many-p99": Row("the same, p99", "ms", 60, 20, more=False),
    "label-both-p50": Row("the same, by both, p50", "ms", 15, 5, more=False),
    "label-both-p99": Row("the same, p99", "ms", 60, 20, more=False),
    "label-text-p50": Row("the same, by a text in the labels, p50", "ms", 15, 5, more=False),
    "label-text-p99": Row("the same, p99", "ms", 60, 20, more=False),
    "label-stats-p50": Row("numbers of these runs by status and hour, p50", "ms", more=False),
    "label-stats-p99": Row("the same, p99", "ms", more=False),
    "label-stats-half-p50": Row("the same, of those with a label that half of them have, p50", "ms", more=False),
    "label-stats-half-p99": Row("the same, p99", "ms", more=False),
    "label-fill": Row("runs with three labels that the index takes in", "runs/s"),
    "kept-metrics-p50": Row("1,000,000 runs kept, of 100 workflows: /metrics, p50", "ms", 30, 10, more=False),
    "kept-metrics-p99": Row("the same, p99", "ms", more=False),
    "kept-list-p50": Row("the same, lists of 100 runs with any filter, p50", "ms", 10, 5, more=False),
    "kept-list-p99": Row("the same, p99", "ms", 50, 20, more=False),
    "kept-run-p50": Row("the same, one run, p50", "ms", 3, 2, more=False),
    "kept-run-p99": Row("the same, p99", "ms", more=False),
    "kept-at-once-list-p50": Row("the same, lists right after the load, p50", "ms", more=False),
    "kept-at-once-list-p99": Row("the same, p99", "ms", more=False),
    "kept-at-once-run-p50": Row("the same, one run right after the load, p50", "ms", more=False),
    "kept-at-once-run-p99": Row("the same, p99", "ms", more=False),
    "kept-memory": Row("the same, memory of the service at the end of the load", "MB", 1200, 700, more=False),
    "kept-memory-later": Row("the same, five minutes later", "MB", 700, 400, more=False),
    "kept-disk": Row("the same, data directory a run", "KB", 3.5, 2.5, more=False),
    "kept-bulk": Row("the same, bulk to one beside an empty store", "ratio", 0.95, 1.0),
    "kept-start": Row("the same, serve to /ready", "s", 3, 1.5, more=False),
    "kept-archived-list-p50": Row(
        "100,000 runs kept with archive_after: lists of 100 runs with any filter, p50", "ms", more=False
    ),
    "kept-archived-list-p99": Row("the same, p99", "ms", more=False),
    "kept-archived-run-p50": Row("the same, one run, p50", "ms", more=False),
    "kept-archived-run-p99": Row("the same, p99", "ms", more=False),
    "kept-archived-late": Row(
        "the same, from when the last run is due until all are archived", "s", 30, 10, more=False
    ),
    "kept-archived-memory": Row("the same, memory of the service, five minutes later", "MB", 350, 200, more=False),
    "kept-archived-disk": Row("the same, data directory a run", "KB", 1, 0.7, more=False),
    "shape-64": Row("CPU of a step in a chain of 64, to one in a chain of 3", "ratio", 1.2, 1.0, more=False),
    "shape-200": Row("the same in a diamond of 200 parallel steps", "ratio", 1.5, 1.0, more=False),
    "shape-64k": Row("the same in a chain of 3 with inputs and outputs of 64 KiB", "ratio", more=False),
    "key-cpu": Row("CPU of a read with a key, to one of an open service", "ratio", 1.03, 1.01, more=False),
    "key-reads": Row("the reads of both, one after the other", "reads/s"),
    "logs": Row("log lines of eight steps beside a bulk, stored", "lines/s", 5_000, 20_000),
    "logs-kept": Row("the same, of all lines that were logged", "%"),
    "logs-bulk": Row("the bulk beside them", "runs/s"),
    "log-first": Row("the first log line of a run, until a follower has it, p50", "ms", 20, 5, more=False),
    "stream-p50": Row("a chunk, until a follower has it, p50", "ms", 5, 2, more=False),
    "stream-p99": Row("the same, p99", "ms", more=False),
    "console-bytes": Row("the console's first page, its files as they are sent", "KB", 150, 80, more=False),
    "console-requests": Row("the same, requests until its rows are there", "requests", 12, 6, more=False),
    "console-paint": Row("the same, first contentful paint", "ms", 400, 200, more=False),
    "console-seen": Row("an event in the log, until an open page shows it, p50", "ms", 60, 25, more=False),
    "console-seen-p99": Row("the same, p99", "ms", more=False),
    "console-events": Row("page of a run with 50,000 events, until its rows are there", "s", 1, 0.5, more=False),
    "console-events-whole": Row("the same, until all events are", "s", more=False),
    "console-events-frames": Row("the same, frames in time while it scrolls", "%", 95, 100),
    "console-events-heap": Row("the same, heap", "MB", more=False),
    "console-map": Row("page of a map of 10,000, until its rows are there", "s", 1, 0.5, more=False),
    "console-map-whole": Row("the same, until all events are", "s", more=False),
    "console-map-frames": Row("the same, frames in time while it scrolls", "%", 95, 100),
    "console-map-heap": Row("the same, heap", "MB", more=False),
    "console-chain": Row("page of a chain of 1,000 steps, until its rows are there", "s", 1, 0.5, more=False),
    "console-chain-whole": Row("the same, until all events are", "s", more=False),
    "console-chain-frames": Row("the same, frames in time while it scrolls", "%", 95, 100),
    "console-chain-heap": Row("the same, heap", "MB", more=False),
    "console-list": Row("list of 120,000 runs, with the slowest filter", "ms", 100, 40, more=False),
    "console-fifty": Row("a bulk beside 50 open consoles, of one without", "%", 95, 98),
    "limit-100": Row("one-step runs by /runs/bulk, 100 at a time by a limit", "runs/s", 1200, 2500),
    "limit-keys": Row("the same, of each of 1,000 keys one at a time", "runs/s", 1500, 3000),
    "limit-waiting": Row(
        "memory of the service with 100,000 runs that wait for a limit, beyond parked ones", "MB", 100, 40, more=False
    ),
    "limit-admit": Row("the same, a holder is cancelled, until the next has its slot, p50", "ms", 3, 1, more=False),
    "limit-next": Row(
        "step completed to the next one's start, one at a time by a limit, p50", "ms", 3, 1.5, more=False
    ),
    "limit-next-p99": Row("the same, p99", "ms", more=False),
    "rate-500": Row("executions in any second of a rate limit of 500, off it by at most", "%", 3, 1, more=False),
    "rate-500-most": Row("the same, the most in any second", "executions", more=False),
    "limit-fair": Row(
        "10,000 runs of one tenant wait, 10 of another: begun until its last", "runs", 25, 20, more=False
    ),
    "stream-late": Row("100,000 chunks, to a follower that comes late", "s", 2, 1, more=False),
}
