"""Every subject, stream, bucket, consumer and message id, built here and nowhere else."""

from __future__ import annotations

from penstock.config.limits import PARTITIONS
from penstock.engine.events import (
    Event,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepSkipped,
    StepStarted,
    event_type,
)

HISTORY = "WORKFLOW_HISTORY"
TASKS = "TASK_QUEUES"
DEAD = "DEAD_LETTERS"
TELEMETRY = "TELEMETRY"
EVENTS = "EVENTS"
STICKY = "STICKY_TASKS"

DEFINITIONS = "workflow_defs"
RUNS = "workflow_runs"
WORKERS = "workers"
SIGNALS = "signals"
CHECKPOINTS = "checkpoints"
STICKY_BINDINGS = "sticky_bindings"

MSG_ID = "Nats-Msg-Id"
EXPECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"

ENGINE_PING = "penstock.engine.ping"  # every shard answers with the partitions that it owns

_STEP_EVENTS = (StepStarted, StepCompleted, StepFailed, StepContinue, StepSkipped)


def history_subject(run_id: str) -> str:
    """Where everyone publishes a run's events; the broker stores them under `stored_subject`."""
    return f"history.{run_id}"


def stored_subject(run_id: str) -> str:
    """The literal subject under which the broker keeps a run's events: reads through it cost a hundredth of a wildcard's."""
    return f"history.{partition(run_id)}.{run_id}"


def watch_subject(run_id: str) -> str:
    """Where the broker sends a copy of each event of the run that it has stored."""
    return f"watch.{run_id}"


def partition(run_id: str) -> int:
    """The broker's own hash: 32-bit FNV-1a, modulo the number of partitions."""
    h = 0x811C9DC5
    for byte in run_id.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h % PARTITIONS


def partition_filter(number: int) -> str:
    return f"history.{number}.*"


def engine_consumer(number: int) -> str:
    return f"engine-{number}"


def schedule_subject(run_id: str, timer: str) -> str:
    return f"schedule.{run_id}.{timer}"


def task_subject(task: str, run_id: str, group: str | None = None) -> str:
    return f"task.{task}.{group}.{run_id}" if group else f"task.{task}.{run_id}"


def task_filter(task: str, group: str | None = None) -> str:
    return task_subject(task, "*", group)


def task_consumer(task: str, group: str | None = None) -> str:
    """The durable that all workers of a task type (and group) share; the broker allows no dots in its name."""
    name = f"workers-{task}-{group}" if group else f"workers-{task}"
    return name.replace(".", "-")


def task_message_id(run_id: str, step_id: str, iteration: int, attempt: int) -> str:
    return f"{run_id}.{step_id}.{iteration}.{attempt}"


def dead_subject(task: str, run_id: str, step_id: str) -> str:
    return f"dead.{task}.{run_id}.{step_id}"


def dead_history_subject(run_id: str) -> str:
    return f"dead.history.{run_id}"


def key_subject(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


def definition_key(name: str, digest: str) -> str:
    return f"{name}/{digest}"


def step_key(run_id: str, step_id: str) -> str:
    return f"{run_id}.{step_id}"


def signal_key(run_id: str, name: str) -> str:
    return f"{run_id}.{name}"


def message_id(event: Event) -> str:
    """`<run_id>.<type>` or `<run_id>.<step_id>.<type>`; `.<attempt>` from attempt 2 on, `.<iteration>` for loops."""
    kind = event_type(event)
    if not isinstance(event, _STEP_EVENTS):
        return f"{event.run_id}.{kind}"
    parts = f"{event.run_id}.{event.step_id}.{kind}"
    if event.attempt_number is not None and event.attempt_number > 1:
        parts = f"{parts}.{event.attempt_number}"
    return f"{parts}.{event.iteration}" if event.iteration else parts


def signal_message_id(run_id: str, name: str, revision: int) -> str:
    """`revision` is the signal's in its bucket: a second signal of a name is another one."""
    return f"{run_id}.signal.received.{name}.{revision}"


def timer_message_id(run_id: str, timer: str, attempt: int | None) -> str:
    """One id for each timer and attempt, so that a timer that two processes fire is stored once."""
    return f"{run_id}.{timer}.timer.fired.{attempt or 0}"
