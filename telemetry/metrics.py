"""The table of metrics: one row per metric, from which collecting, `/metrics` and the docs come.

Names follow the conventions of Prometheus: base units, `_total` for what only grows. A metric of a process carries the
labels `host` and `process` besides its own. For the sum over all processes, let the database add their rates: that is
right even when a process restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

LABELS_MAX = 100  # values of a label that has no bound of its own, in each process; the rest is counted as OTHER
OTHER = "other"
OPEN_LABELS = frozenset({"workflow", "task"})  # always a metric's first label

LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DURATION_S = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    7200.0,
    28800.0,
    86400.0,
)
REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metric(NamedTuple):
    """`bounds` are a histogram's upper limits. `of`: each process has a value of its own, or the service has one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    of: Literal["process", "service"] = "process"


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("penstock_runs", "gauge", "Runs in the run index.", ("workflow", "status"), of="service"),
        Metric(
            "penstock_run_events_total",
            "counter",
            "Events that changed a run: scheduled, started, completed, failed, cancelled, compensating, resumed.",
            ("workflow", "event"),
        ),
        Metric(
            "penstock_step_events_total",
            "counter",
            "Events that changed a step: started, completed, failed (one attempt), retried (another attempt follows), "
            "skipped, overridden (completed by hand), continued (next iteration), requested, granted, rejected, "
            "expired (approvals).",
            ("task", "event"),
        ),
        Metric(
            "penstock_run_duration_seconds",
            "histogram",
            "From a run's start to its end: completed, failed or cancelled.",
            ("workflow", "status"),
            DURATION_S,
        ),
        Metric(
            "penstock_step_duration_seconds",
            "histogram",
            "One execution of a step, from its start to its result: completed, failed or continued.",
            ("task",),
            DURATION_S,
        ),
        Metric(
            "penstock_queue_wait_seconds",
            "histogram",
            "From when a step can begin (the run has started, its last dependency is done) to the start of its first "
            "execution.",
            ("task",),
            DURATION_S,
        ),
        Metric(
            "penstock_events_ignored_total",
            "counter",
            "Events of the history that changed nothing: repeats and late ones.",
        ),
        Metric("penstock_events_dead_lettered_total", "counter", "History messages that became dead letters."),
        Metric(
            "penstock_event_handling_seconds",
            "histogram",
            "From an event's receipt until the broker has stored all its effects.",
            bounds=LATENCY_S,
        ),
        Metric(
            "penstock_event_commit_seconds",
            "histogram",
            "From an event's receipt until it is handled: carried out, and covered by a snapshot if the run needs one.",
            bounds=LATENCY_S,
        ),
        Metric(
            "penstock_publish_seconds",
            "histogram",
            "From publishing a message to the broker's acknowledgement.",
            bounds=LATENCY_S,
        ),
        Metric("penstock_publishes_in_flight", "gauge", "Messages that the broker has not acknowledged yet."),
        Metric("penstock_actors", "gauge", "Runs in memory."),
        Metric("penstock_mailbox_events", "gauge", "Events that wait in mailboxes of runs."),
        Metric("penstock_unsaved_runs", "gauge", "Runs that changed in the last 3 s, or whose snapshot is due."),
        Metric("penstock_timers", "gauge", "Timers in memory; older ones are the broker's."),
        Metric(
            "penstock_limit_holders",
            "gauge",
            "Runs or executions that hold a slot of a limit, over all keys of its scope.",
            ("kind", "scope"),
        ),
        Metric(
            "penstock_limit_waiting",
            "gauge",
            "Runs or executions that wait for a limit, over all keys of its scope.",
            ("kind", "scope"),
        ),
        Metric(
            "penstock_limit_decisions_total",
            "counter",
            "Decisions about limits of a kind: who may begin; each may be about many.",
            ("kind",),
        ),
        Metric(
            "penstock_limit_backstop_releases_total",
            "counter",
            "Slots given back because their holder did not hold them by its own log: an error of the service.",
        ),
        Metric("penstock_partition_owner", "gauge", "1 for each partition that the process owns.", ("partition",)),
        Metric(
            "penstock_partitions_unowned",
            "gauge",
            "Partitions that no process owns: their runs make no progress.",
            of="service",
        ),
        Metric(
            "penstock_queue_tasks",
            "gauge",
            "Tasks of a type: waiting for a worker, or delivered to one that has not answered. The type is followed "
            "by a colon and the worker group, if any.",
            ("task", "state"),
            of="service",
        ),
        Metric(
            "penstock_queue_oldest_seconds",
            "gauge",
            "Age of the oldest task of a type, delivered or not.",
            ("task",),
            of="service",
        ),
        Metric(
            "penstock_queue_unclaimed_tasks",
            "gauge",
            "Tasks of a type that no worker has asked for yet; `other`: of types that no latest definition names.",
            ("task",),
            of="service",
        ),
        Metric("penstock_stream_messages", "gauge", "Messages in a stream or bucket.", ("stream",), of="service"),
        Metric("penstock_stream_bytes", "gauge", "Size of a stream or bucket.", ("stream",), of="service"),
        Metric("penstock_storage_bytes", "gauge", "Storage that the broker uses.", of="service"),
        Metric(
            "penstock_storage_limit_bytes",
            "gauge",
            "Storage that the broker may use; absent without a limit.",
            of="service",
        ),
        Metric(
            "penstock_run_index_lag_messages",
            "gauge",
            "Messages of the log that the run index has not read.",
            of="service",
        ),
        Metric(
            "penstock_engine_lag_messages",
            "gauge",
            "Messages of the log that no engine has received, of the partitions that have one.",
            of="service",
        ),
        Metric("penstock_processes", "gauge", "Processes that answered this scrape.", of="service"),
        Metric(
            "penstock_orphaned_tasks_total",
            "counter",
            "Tasks that the broker would not have delivered any more: queued again, or removed because no step waits "
            "for them.",
            ("outcome",),
        ),
        Metric("penstock_broker_connected", "gauge", "1 while the process is connected to the broker."),
        Metric(
            "penstock_broker_reconnects_total", "counter", "Connections to the broker that were lost and came back."
        ),
        Metric("penstock_restarts_total", "counter", "Times that the supervisor started a child again.", ("child",)),
        Metric("penstock_http_requests_total", "counter", "Requests answered.", ("route", "method", "status")),
        Metric(
            "penstock_http_request_seconds",
            "histogram",
            "From the receipt of a request's body to its response, for streams to the response's beginning.",
            ("route", "method"),
            REQUEST_S,
        ),
        Metric("penstock_bridge_pollers", "gauge", "Polls of the worker bridge that wait for a task."),
        Metric("penstock_bridge_tasks_total", "counter", "Tasks that the worker bridge handed out.", ("task",)),
        Metric("penstock_trigger_fires_total", "counter", "Runs that triggers started.", ("kind",)),
        Metric("penstock_log_events_total", "counter", "Warnings and errors in the log.", ("level",)),
        Metric(
            "penstock_background_failures_total",
            "counter",
            "Background tasks that ended by an error: they are started again, or what depends on them ends.",
            ("work",),
        ),
        Metric(
            "penstock_telemetry_dropped_total",
            "counter",
            "Telemetry that was dropped because there was too much.",
            ("kind",),
        ),
        Metric("penstock_process_start_time_seconds", "gauge", "When the process started, since the epoch."),
        Metric("penstock_process_cpu_seconds_total", "counter", "CPU time that the process has used."),
        Metric("penstock_process_resident_memory_bytes", "gauge", "Memory that the process holds."),
    )
}
