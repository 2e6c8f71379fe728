"""Every subject, stream, bucket, consumer and key is built here and nowhere else. Message ids: message_ids.py."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from penstock.config.limits import PARTITIONS

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
BRIDGE_LEASES = "bridge_leases"
APPROVAL_TOKENS = "approval_tokens"
TRIGGERS = "triggers"
ENGINES = "engines"
RERUN_KEYS = "rerun_keys"
EVENT_KEYS = "event_keys"
EVENT_WAITS = "event_waits"

# Prefixes of keys in the bucket of engines; a dot and an id follow.
MEMBER = "member"  # a shard that is alive
CLAIM = "partition"  # who owns it
DRAINED = "drained"  # a draining engine
PROBE = "probe"  # written only to test whether a write succeeds

CAPTURE_PREFIX = "TRIGGER-"
CAPTURES_KEY = "/captures"  # in the bucket of triggers: the existing streams and their users

OWNER_SEQ = "Owner-Seq"  # of an end written by the run's owner: the last event of the run that it had folded
EVENT_HEADERS = "Event-Headers"  # of a webhook: its sender's headers, as a JSON object of strings
EVENT_ID = "Event-Id"  # of an event: a repeat with the same id is the same event

_OWNER_SEQ = re.compile(rb"\r\n%b: (\d{1,18})\r\n" % OWNER_SEQ.encode())

RESTORED = "restored"  # in the metadata of a stream that was created again
BRIDGE_FORWARD = "penstock.bridge.forward"  # with a front-end process's id: reports on the tasks that it has assigned
# with a registration: the worker's connect stream ended, in some front-end process
BRIDGE_LEFT = "penstock.bridge.left"
BRIDGE_RELEASE = "penstock.bridge.release"  # with a worker id: its waiting polls end, in every front-end process
ENGINE_PING = "penstock.engine.ping"  # every shard answers with the partitions that it owns
ENGINE_CHANGED = "penstock.engine.ring"  # every shard reads members and claims again
TRIGGERS_PING = "penstock.triggers.ping"  # every process that runs triggers answers
METRICS_PING = "penstock.metrics.ping"  # every process answers with its metrics

NO_SUBJECT = "=none"  # in no stream


def history_subject(run_id: str) -> str:
    """The subject to which a run's events are published; the broker stores them under `stored_subject`."""
    return f"history.{run_id}"


def stored_subject(run_id: str) -> str:
    """The literal subject under which the broker stores a run's events: a read by it costs a hundredth of a read by a
    wildcard."""
    return f"history.{partition(run_id)}.{run_id}"


def forward_subject(holder: str) -> str:
    """The subject on which a front-end process receives reports on tasks that it has assigned, from the processes that
    got them instead."""
    return f"{BRIDGE_FORWARD}.{holder}"


def watch_subject(run_id: str) -> str:
    """The subject to which the broker sends a copy of each stored event of the run."""
    return f"watch.{run_id}"


def partition(run_id: str) -> int:
    """The partition by the broker's own hash: 32-bit FNV-1a, modulo the number of partitions."""
    return _fnv1a(run_id) % PARTITIONS


@lru_cache(maxsize=1 << 14)
def _fnv1a(run_id: str) -> int:
    """Takes 3 us, once for each timer of a run."""
    h = 0x811C9DC5
    for byte in run_id.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def partition_filter(number: int) -> str:
    return f"history.{number}.*"


def engine_consumer(number: int, epoch: int | None = None) -> str:
    """The durable consumer of a partition since `epoch`, the revision of the claim with which its use began; None: from
    a version without claims."""
    return f"engine-{number}" if epoch is None else f"engine-{number}-{epoch}"


def engine_consumer_parts(consumer: str) -> tuple[int, int]:
    """Partition and epoch of such a consumer (epoch -1: from a version without claims); partition -1 for any other
    consumer."""
    kind, *parts = consumer.split("-")
    if kind != "engine" or not 1 <= len(parts) <= 2 or not all(part.isdigit() for part in parts):
        return -1, -1
    return int(parts[0]), int(parts[1]) if len(parts) == 2 else -1


def member_key(member_id: str) -> str:
    return f"{MEMBER}.{member_id}"


def claim_key(number: int) -> str:
    return f"{CLAIM}.{number}"


def drained_key(engine: str) -> str:
    return f"{DRAINED}.{engine}"


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


def event_subject(name: str) -> str:
    """Where an event that a program sends is stored."""
    return f"event.{name}"


def event_of(subject: str) -> str | None:
    """The name of the event that is stored under a subject; None for what is no event."""
    return subject.removeprefix("event.") if subject.startswith("event.") else None


def wait_key(run_id: str, step_id: str, attempt: int) -> str:
    """The key of what an attempt of a step waits for, under the partition of its run."""
    return f"{partition(run_id)}.{run_id}.{step_id}.{attempt}"


def wait_checkpoint_key(number: int) -> str:
    """The key of the checkpoint of a partition's waits, which `waits_in` finds, too. No run id is such a word."""
    return f"{number}.checkpoint"


def waits_in(number: int) -> str:
    """A filter for all that is waited for in a partition."""
    return f"{number}.>"


def event_key(name: str, key: str) -> str:
    """What a caller's idempotency key stands for, in the bucket of such keys and as the event's id."""
    return "api." + sha256(f"{name}\n{key}".encode()).hexdigest()


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


def capture_stream(name: str, generation: str) -> str:
    """A stream of the service for a subject that no other stream stores; named after the trigger that needed it
    first."""
    return CAPTURE_PREFIX + f"{name.replace('.', '=')}-{generation}"


def route_key(route: str) -> str:
    """The key of the name of the trigger that has this route (`POST orders/new`)."""
    return f"routes/{sha256(route.encode()).hexdigest()[:32]}"


def progress_key(trigger: str) -> str:
    """The key of a cron trigger's last handled instant."""
    return f"{trigger}/progress"


def key_subject(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


def rerun_key(workflow: str, key: str) -> str:
    """The key in the bucket of reruns for a caller's idempotency key."""
    return sha256(f"{workflow}\n{key}".encode()).hexdigest()


def owner_seq(headers: bytes) -> int | None:
    """The value of OWNER_SEQ in a message's raw headers; None without it."""
    found = _OWNER_SEQ.search(headers)
    return None if found is None else int(found[1])


def definition_key(name: str, digest: str) -> str:
    return f"{name}/{digest}"


def definition_keys(name: str) -> str:
    """A filter that all keys of a workflow's definitions match, among others."""
    return ".".join([*name.split(".")[:-1], "*"])


def versions_key(name: str) -> str:
    """Beside a workflow's latest definition: the list of its versions. No digest is this word."""
    return f"{name}/versions"


def step_key(run_id: str, step_id: str) -> str:
    return f"{run_id}.{step_id}"


def pause_key(run_id: str, step_id: str) -> str:
    """The key, beside a step's checkpoint, of the number of its pauses and the label of the last."""
    return f"{run_id}.{step_id}/pause"


def telemetry_subject(kind: str, about: str) -> str:
    """`kind` is metrics or log, of a process, or span, of a trace."""
    return f"telemetry.{kind}.{about}"


def signal_key(run_id: str, name: str) -> str:
    return f"{run_id}.{name}"
