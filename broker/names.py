"""Every subject, stream, bucket and consumer is built here and nowhere else. Keys of buckets: record_keys.py; message
ids: message_ids.py."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.config.limits import PARTITIONS

HISTORY = "WORKFLOW_HISTORY"
TASKS = "TASK_QUEUES"
DEAD = "DEAD_LETTERS"
TELEMETRY = "TELEMETRY"
EVENTS = "EVENTS"
BATCHES = "BATCHES"
AUDIT = "AUDIT"
REFUSALS = "AUDIT_REFUSALS"
STICKY = "STICKY_TASKS"
LOGS = "LOGS"
CHUNKS = "CHUNKS"
PROGRESS = "PROGRESS"
LIMITS = "LIMITS"
ARCHIVE = "ARCHIVED_RUNS"

DEFINITIONS = "workflow_defs"
RUNS = "workflow_runs"
WORKERS = "workers"
SIGNALS = "signals"
CHECKPOINTS = "checkpoints"
STICKY_BINDINGS = "sticky_bindings"
BRIDGE_LEASES = "bridge_leases"
APPROVAL_TOKENS = "approval_tokens"
TRIGGERS = "triggers"
ENGINES = "engines"
RERUN_KEYS = "rerun_keys"
EVENT_KEYS = "event_keys"
EVENT_WAITS = "event_waits"
API_KEYS = "api_keys"
SESSIONS = "sessions"
IMPORTS = "imported_runs"
LIMIT_CONFIGS = "limits"

CAPTURE_PREFIX = "TRIGGER-"
BATCH_PREFIX = "penstock.batch."

OWNER_SEQ = "Owner-Seq"  # of an end written by the run's owner: the last event of the run that it had folded
# Of such an end: the run's snapshot at that event. The broker has stored the end only because nothing came in between
OWNER_STATE = "Owner-State"
BATCH_STATE = "Batch-State"  # of an event in a batch: the batch after it, as JSON
EVENT_HEADERS = "Event-Headers"  # of a webhook: its sender's headers, as a JSON object of strings
EVENT_BY = "Event-By"  # of an event: the name of the key with which it was sent
EVENT_ID = "Event-Id"  # of an event: a repeat with the same id is the same event
TRACE_PARENT = "traceparent"  # of an event: the span in which it was sent (W3C Trace Context)

_OWNER_SEQ = re.compile(rb"\r\n%b: (\d{1,18})\r\n" % OWNER_SEQ.encode())
ARCHIVED = "penstock.archived"  # the subject of all archived runs: one for each would take the broker's memory

_OWNER_STATE = b"\r\n%b: " % OWNER_STATE.encode()

RESTORED = "restored"  # in the metadata of a stream that was created again
BRIDGE_FORWARD = "penstock.bridge.forward"  # with a front-end process's id: reports on the tasks that it has assigned
# with a registration: the worker's connect stream ended, in some front-end process
BRIDGE_LEFT = "penstock.bridge.left"
BRIDGE_RELEASE = "penstock.bridge.release"  # with a worker id: its waiting polls end, in every front-end process
BRIDGE_SOUGHT = "penstock.bridge.sought"  # with a task id: whoever has just assigned it stores its lease now
ENGINE_PING = "penstock.engine.ping"  # every shard answers with the partitions that it owns
ENGINE_CHANGED = "penstock.engine.ring"  # every shard reads members and claims again
TRIGGERS_PING = "penstock.triggers.ping"  # every process that runs triggers answers
LIMITS_MADE = "penstock.limits.made"  # the stream of limits is there from now on
LIMITS_QUESTION = "penstock.limits.of"  # with a partition's number: its owner answers about its limits
METRICS_PING = "penstock.metrics.ping"  # every process answers with its metrics

AUDIT_FILTER = "audit.change.*"
REFUSALS_SUBJECT = "audit.refused"

NO_SUBJECT = "=none"  # in no stream
HISTORY_START = "history."
_ALL = "all"


def history_subject(run_id: str) -> str:
    """The subject to which a run's events are published; the broker stores them under `stored_subject`."""
    return f"history.{run_id}"


def stored_subject(run_id: str) -> str:
    """The literal subject under which the broker stores a run's events: a read by it costs a hundredth of a read by a
    wildcard."""
    return f"history.{partition(run_id)}.{run_id}"


def event_run_id(stored: str) -> str | None:
    """The run of whose history this is the subject; None for that of a schedule."""
    return stored.rpartition(".")[2] if stored.startswith(HISTORY_START) else None


def forward_subject(holder: str) -> str:
    """The subject on which a front-end process receives reports on tasks that it has assigned, from the processes that
    got them instead."""
    return f"{BRIDGE_FORWARD}.{holder}"


def watch_subject(run_id: str) -> str:
    """The subject to which the broker sends a copy of each stored event of the run."""
    return f"watch.{run_id}"


def cancel_subject(worker_id: str) -> str:
    """Where a worker is notified that what it carries out is not wanted any more."""
    return f"worker.{worker_id}.cancel"


@lru_cache(maxsize=1 << 14)
def partition(run_id: str) -> int:
    """The partition by the broker's own hash: 32-bit FNV-1a, modulo the number of partitions.

    It takes 3 us, once for each timer. `cache_clear`: the ids of a burst are spread over all memory that it used."""
    h = 0x811C9DC5
    for byte in run_id.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h % PARTITIONS


def partition_filter(number: int | None) -> str:
    """The events of a partition; None: of all."""
    return f"history.{'*' if number is None else number}.*"


def partition_in(stored: str) -> int:
    """The partition in the subject of a stored event."""
    return int(stored.split(".")[1])


def engine_consumer(number: int, epoch: int | None = None) -> str:
    """The durable consumer of a partition since `epoch`, the revision of the claim with which its use began; None: from
    a version without claims."""
    return f"engine-{number}" if epoch is None else f"engine-{number}-{epoch}"


def common_consumer(epoch: int) -> str:
    """The durable consumer of all partitions since `epoch`."""
    return f"engine-{_ALL}-{epoch}"


class EngineConsumer(NamedTuple):
    """What the name of an engine's consumer says. `partition` None: all of them. `epoch` -1: from a version without
    claims."""

    epoch: int
    partition: int | None


def engine_consumer_in(consumer: str) -> EngineConsumer | None:
    """What this name says; None: it is not an engine's consumer."""
    kind, *parts = consumer.split("-")
    if kind != "engine" or not 1 <= len(parts) <= 2 or not all(part.isdigit() for part in parts[1:]):
        return None
    if parts[0] == _ALL and len(parts) == 2:
        return EngineConsumer(int(parts[1]), None)
    return EngineConsumer(int(parts[1]) if len(parts) == 2 else -1, int(parts[0])) if parts[0].isdigit() else None


def schedule_subject(run_id: str, timer: str) -> str:
    return f"schedule.{run_id}.{timer}"


def start_subject(run_id: str) -> str:
    """The schedule that starts a scheduled run."""
    return schedule_subject(run_id, "start")


def task_subject(task: str, run_id: str, group: str | None = None) -> str:
    """The subject of a task. A group's token begins with `=`, which no name contains, so no type is mistaken for
    another type with a group."""
    return f"task.{task}.={group}.{run_id}" if group else f"task.{task}.{run_id}"


def task_filter(task: str, group: str | None = None) -> str:
    return task_subject(task, "*", group)


def task_of(subject: str) -> tuple[str, str | None]:
    """Type and group of a task's subject, or of a filter for such subjects."""
    task, _, group = subject.removeprefix("task.").rpartition(".")[0].partition(".=")
    return task, group or None


def task_consumer(task: str, group: str | None = None) -> str:
    """The durable consumer that all workers of a task type (and group) share; the broker allows no dots in its name."""
    return f"workers-{_dotless(task)}:{_dotless(group)}" if group else f"workers-{_dotless(task)}"


def spare_task_consumer(task: str, group: str | None = None) -> str:
    """A second name, for use when a former version has given the first to another type. No group name is empty, so it
    is unique."""
    return task_consumer(task, group) + ":"


def former_task_consumer(task: str) -> str:
    """The name that a former version used for a type's consumer. It was ambiguous: `a.b`, `a-b`, and `a` with group `b`
    shared one."""
    return f"workers-{task.replace('.', '-')}"


def task_subjects(task: str, run_id: str, group: str | None) -> list[str]:
    """The subjects under which the run's tasks of a type (and group) may wait. A former version used the subject of
    another type for a group's."""
    return [task_subject(task, run_id, group)] + ([f"task.{task}.{group}.{run_id}"] if group else [])


def _dotless(name: str) -> str:
    return name.replace(".", "=")


def sticky_subject(task: str, worker_id: str, run_id: str) -> str:
    """The subject of a task for the one worker that its run is bound to. The worker id is one token, so that `a.b` of
    worker `c` and `a` of worker `b.c` differ."""
    return f"sticky.{task}.{_dotless(worker_id)}.{run_id}"


def sticky_subjects(task: str, worker_id: str, run_id: str) -> list[str]:
    """The subjects under which the run's tasks for a worker may wait. A former version kept the dots of a worker id."""
    return [sticky_subject(task, worker_id, run_id)] + (
        [f"sticky.{task}.{worker_id}.{run_id}"] if "." in worker_id else []
    )


def sticky_of(subject: str) -> tuple[str, str]:
    """Type and worker id of a sticky task's subject, or of a filter for such subjects."""
    task, worker_id = subject.removeprefix("sticky.").rpartition(".")[0].rsplit(".", 1)
    return task, worker_id.replace("=", ".")


def sticky_filter(task: str, worker_id: str) -> str:
    return sticky_subject(task, worker_id, "*")


def sticky_consumer(task: str, worker_id: str) -> str:
    """The consumer of one worker and task type. The length distinguishes `a-b` with `c` from `a` with `b-c`; no name
    contains `~`."""
    return f"sticky-{len(task)}-{task}-{worker_id}".replace(".", "~")


def sticky_consumer_parts(consumer: str) -> tuple[str, str] | None:
    """Type and worker id of such a consumer; None for any other consumer."""
    kind, _, rest = consumer.replace("~", ".").partition("-")
    size, _, both = rest.partition("-")
    if kind != "sticky" or not size.isdigit() or both[int(size) : int(size) + 1] != "-":
        return None
    return both[: int(size)], both[int(size) + 1 :]


def dead_subject(task: str, run_id: str, step_id: str) -> str:
    return f"dead.{task}.{run_id}.{step_id}"


def dead_filter(task: str | None = None) -> str:
    """A filter for all dead letters, or for those of one task type and of types whose names continue with a dot."""
    return "dead.>" if task is None else f"dead.{task}.>"


def dead_history_subject(run_id: str) -> str:
    return f"dead.history.{run_id}"


def dead_trigger_subject(name: str) -> str:
    """The subject of trigger events that could start no run."""
    return f"dead.trigger.{name}"


def audit_subject(entry_id: str) -> str:
    """The subject of an entry of the audit log. It is written again when its outcome is known."""
    return f"audit.change.{entry_id}"


def event_subject(name: str) -> str:
    """Where an event that a program sends is stored."""
    return f"event.{name}"


def event_of(subject: str) -> str | None:
    """The name of the event that is stored under a subject; None for what is no event."""
    return subject.removeprefix("event.") if subject.startswith("event.") else None


def webhook_subject(name: str) -> str:
    """The subject to which an accepted webhook call for a trigger is published."""
    return f"event.webhook.{name}"


def cron_subject(name: str, generation: str) -> str:
    """The subject of the schedule for a cron trigger's next instant; it has at most one message."""
    return f"cron.{name}.{generation}"


def cron_target(name: str) -> str:
    """The subject to which the broker publishes at that instant."""
    return f"event.cron.{name}"


def trigger_consumer(name: str, generation: str) -> str:
    """The durable consumer that all processes running a trigger share. No name contains `=`, so it is unique."""
    return f"trigger-{name.replace('.', '=')}-{generation}"


def batch_subject(generation: str, key: str) -> str:
    """The subject of the batch that is open for a key (32 hexadecimal characters) of a trigger."""
    return f"{BATCH_PREFIX}{generation}.{key}"


def batch_schedule(generation: str, key: str, kind: str) -> str:
    """The subject of the schedule for a tick of a batch; `kind` is 8 hexadecimal characters."""
    return f"{batch_subject(generation, key)}.at.{kind}"


def batch_tick(generation: str, key: str) -> str:
    """The subject to which the broker publishes when a batch may be due."""
    return f"{batch_subject(generation, key)}.due"


def batch_mark(generation: str) -> str:
    """The subject of the place up to which a trigger's events were in batches that have ended."""
    return batch_subject(generation, "=ended")


def is_batch_tick(subject: str) -> bool:
    return subject.startswith(BATCH_PREFIX)


def batch_key(tick: str) -> str:
    """The key in the subject of a tick."""
    return tick.split(".")[-2]


def capture_stream(name: str, generation: str) -> str:
    """A stream of the service for a subject that no other stream stores; named after the trigger that needed it
    first."""
    return CAPTURE_PREFIX + f"{name.replace('.', '=')}-{generation}"


def key_subject(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


def owner_seq(headers: bytes) -> int | None:
    """The value of OWNER_SEQ in a message's raw headers; None without it."""
    found = _OWNER_SEQ.search(headers)
    return None if found is None else int(found[1])


def owner_state(headers: bytes) -> bytes | None:
    """The value of OWNER_STATE in a message's raw headers; None without it."""
    at = headers.find(_OWNER_STATE)
    if at < 0:
        return None
    begin = at + len(_OWNER_STATE)
    end = headers.find(b"\r\n", begin)  # of a state of some hundred bytes, an expression would look at each
    return headers[begin:end] if end > begin else None


def telemetry_subject(kind: str, about: str) -> str:
    """`kind` is metrics or log, of a process, or span, of a trace."""
    return f"telemetry.{kind}.{about}"


def log_subject(run_id: str, step_id: str) -> str:
    """Where the log lines of a step are stored. The dots of its id stay: what is below a step, such as the elements of
    a map, is below its subject."""
    return f"log.{run_id}.{step_id}"


def chunk_subject(run_id: str, step_id: str) -> str:
    """Where the chunks that a step streams are stored, in the same form."""
    return f"stream.{run_id}.{step_id}"


def progress_subject(run_id: str, step_id: str) -> str:
    """Where the latest progress of a step is kept, in the same form."""
    return f"progress.{run_id}.{step_id}"


def copy_subject(subject: str) -> str:
    """Where the broker sends a copy of each stored message of such a subject, with its sequence."""
    return f"watch.{subject}"


def said_by(subject: str) -> tuple[str, str]:
    """Run and step of one of these subjects; also of a copy's, without its `watch.`."""
    _, run_id, step_id = subject.removeprefix("watch.").split(".", 2)
    return run_id, step_id


def said_in(subject: str) -> tuple[str, str]:
    """Filters for what a step said, and for what is below it."""
    return subject, f"{subject}.>"


def limit_ask_subject(limit_id: str) -> str:
    """Where whoever wants something of a limit stores it."""
    return f"limit.{partition(limit_id)}.{limit_id}.ask"


def limit_decision_subject(limit_id: str) -> str:
    """Where the owner of a limit, and nobody else, stores what it has decided."""
    return f"limit.{partition(limit_id)}.{limit_id}.say"


def limit_asks_filter(number: int | None = None) -> str:
    """What is asked of the limits of a partition, or of all."""
    return f"limit.{'*' if number is None else number}.*.ask"


def limits_filter(number: int) -> str:
    """All that is stored of the limits of a partition."""
    return f"limit.{number}.>"


def limit_of(subject: str) -> tuple[str, bool]:
    """The limit of such a subject, and whether a decision is stored there."""
    _, _, limit_id, kind = subject.split(".")
    return limit_id, kind == "say"


def limits_question(number: int) -> str:
    """Where the owner of a partition answers about its limits."""
    return f"{LIMITS_QUESTION}.{number}"


def limits_asked_subject(number: int) -> str:
    """What is stored there says that the runs of a partition have asked for their slots since the stream was made."""
    return f"limit.asked.{number}"
