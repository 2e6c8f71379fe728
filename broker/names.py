"""Every subject, stream, bucket, consumer and key, built here and nowhere else. Message ids: message_ids.py."""

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

# Keys of the bucket of engines begin so; what they are about stands behind a dot.
MEMBER = "member"  # a shard that is alive
CLAIM = "partition"  # who owns it
DRAINED = "drained"  # an engine that shall own nothing
PROBE = "probe"  # nothing: it is written to see whether that is possible

CAPTURE_PREFIX = "TRIGGER-"
CAPTURES_KEY = "/captures"  # in the bucket of triggers: which of those streams are there, and for whom

OWNER_SEQ = "Owner-Seq"  # of an end written by the run's owner: the last event of the run that it had folded
EVENT_HEADERS = "Event-Headers"  # of a webhook: its sender's headers, as a JSON object of strings
EVENT_ID = "Event-Id"  # of an event that may be published more than once, and is one occurrence all the same

_OWNER_SEQ = re.compile(rb"\r\n%b: (\d{1,18})\r\n" % OWNER_SEQ.encode())

RESTORED = "restored"  # in the metadata of a stream that was made anew
BRIDGE_FORWARD = "penstock.bridge.forward"  # with a front-end process's id: answers to the tasks that it has handed out
# a worker, as its registration has it: its connect stream ended, in some front-end process
BRIDGE_LEFT = "penstock.bridge.left"
BRIDGE_RELEASE = "penstock.bridge.release"  # a worker id: its waiting polls end, in every front-end process
ENGINE_PING = "penstock.engine.ping"  # every shard answers with the partitions that it owns
ENGINE_CHANGED = "penstock.engine.ring"  # every shard reads members and claims again
TRIGGERS_PING = "penstock.triggers.ping"  # every process that runs triggers answers
METRICS_PING = "penstock.metrics.ping"  # every process answers with its numbers

NO_SUBJECT = "=none"  # of no stream


def history_subject(run_id: str) -> str:
    """Where everyone publishes a run's events; the broker stores them under `stored_subject`."""
    return f"history.{run_id}"


def stored_subject(run_id: str) -> str:
    """The literal subject under which the broker keeps a run's events: reads through it cost a hundredth of a
    wildcard's."""
    return f"history.{partition(run_id)}.{run_id}"


def forward_subject(holder: str) -> str:
    """Where a front-end process takes answers to the tasks that it has handed out, from those that got them in its
    place."""
    return f"{BRIDGE_FORWARD}.{holder}"


def watch_subject(run_id: str) -> str:
    """Where the broker sends a copy of each event of the run that it has stored."""
    return f"watch.{run_id}"


def partition(run_id: str) -> int:
    """The broker's own hash: 32-bit FNV-1a, modulo the number of partitions."""
    return _fnv1a(run_id) % PARTITIONS


@lru_cache(maxsize=1 << 14)
def _fnv1a(run_id: str) -> int:
    """It takes 3 us, and is asked for with each timer of a run."""
    h = 0x811C9DC5
    for byte in run_id.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def partition_filter(number: int) -> str:
    return f"history.{number}.*"


def engine_consumer(number: int, epoch: int | None = None) -> str:
    """The durable of a partition's owners since `epoch`, the revision of the claim that began them; None: from before
    there were claims."""
    return f"engine-{number}" if epoch is None else f"engine-{number}-{epoch}"


def engine_consumer_parts(consumer: str) -> tuple[int, int]:
    """Partition and epoch (-1: from before there were claims) of such a durable; partition -1: it is another one."""
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
    """No name holds `=`: a group's begins with it, so that no type is taken for another one with a group."""
    return f"task.{task}.={group}.{run_id}" if group else f"task.{task}.{run_id}"


def task_filter(task: str, group: str | None = None) -> str:
    return task_subject(task, "*", group)


def task_of(subject: str) -> tuple[str, str | None]:
    """Type and group of a task's subject, or of a filter for such."""
    task, _, group = subject.removeprefix("task.").rpartition(".")[0].partition(".=")
    return task, group or None


def task_consumer(task: str, group: str | None = None) -> str:
    """The durable that all workers of a task type (and group) share; the broker allows no dots in its name."""
    return f"workers-{_dotless(task)}:{_dotless(group)}" if group else f"workers-{_dotless(task)}"


def spare_task_consumer(task: str, group: str | None = None) -> str:
    """Another durable for them, where a former version has given the name to another type: no group has an empty
    name."""
    return task_consumer(task, group) + ":"


def former_task_consumer(task: str) -> str:
    """What a former version called the durable of a type. It meant other types and groups, too: `a.b`, `a-b`, and `a`
    with `b`."""
    return f"workers-{task.replace('.', '-')}"


def task_subjects(task: str, run_id: str, group: str | None) -> list[str]:
    """Where the run's tasks of a type (and group) may wait. A former version queued a group's with those of another
    type."""
    return [task_subject(task, run_id, group)] + ([f"task.{task}.{group}.{run_id}"] if group else [])


def _dotless(name: str) -> str:
    return name.replace(".", "=")


def sticky_subject(task: str, worker_id: str, run_id: str) -> str:
    """Where a task waits for the one worker that its run is bound to. The worker is one token: it and the type cannot
    be taken for others, as `a.b` of worker `c` for `a` of worker `b.c`."""
    return f"sticky.{task}.{_dotless(worker_id)}.{run_id}"


def sticky_subjects(task: str, worker_id: str, run_id: str) -> list[str]:
    """Where the run's tasks for a worker may wait. A former version left the dots in a worker id."""
    return [sticky_subject(task, worker_id, run_id)] + (
        [f"sticky.{task}.{worker_id}.{run_id}"] if "." in worker_id else []
    )


def sticky_of(subject: str) -> tuple[str, str]:
    """Type and worker id of such a task's subject, or of a filter for such."""
    task, worker_id = subject.removeprefix("sticky.").rpartition(".")[0].rsplit(".", 1)
    return task, worker_id.replace("=", ".")


def sticky_filter(task: str, worker_id: str) -> str:
    return sticky_subject(task, worker_id, "*")


def sticky_consumer(task: str, worker_id: str) -> str:
    """One consumer for each worker and task type: the length keeps `a-b` with `c` apart from `a` with `b-c`, and `~` is
    in no name."""
    return f"sticky-{len(task)}-{task}-{worker_id}".replace(".", "~")


def sticky_consumer_parts(consumer: str) -> tuple[str, str] | None:
    """Type and worker id of such a consumer; None: it is another one."""
    kind, _, rest = consumer.replace("~", ".").partition("-")
    size, _, both = rest.partition("-")
    if kind != "sticky" or not size.isdigit() or both[int(size) : int(size) + 1] != "-":
        return None
    return both[: int(size)], both[int(size) + 1 :]


def dead_subject(task: str, run_id: str, step_id: str) -> str:
    return f"dead.{task}.{run_id}.{step_id}"


def dead_filter(task: str | None = None) -> str:
    """Every dead letter, or those of one task type and of others whose names go on with a dot."""
    return "dead.>" if task is None else f"dead.{task}.>"


def dead_history_subject(run_id: str) -> str:
    return f"dead.history.{run_id}"


def dead_trigger_subject(name: str) -> str:
    """What came to a trigger and could start no run."""
    return f"dead.trigger.{name}"


def event_subject(name: str) -> str:
    """Where an event that a program sends is stored."""
    return f"event.{name}"


def event_key(name: str, key: str) -> str:
    """What a caller's idempotency key stands for, in the bucket of such keys and as the event's id."""
    return "api." + sha256(f"{name}\n{key}".encode()).hexdigest()


def webhook_subject(name: str) -> str:
    """Where webhook intake publishes what it has accepted for a trigger."""
    return f"event.webhook.{name}"


def cron_subject(name: str, generation: str) -> str:
    """The schedule of a cron trigger's next instant; there is at most one message."""
    return f"cron.{name}.{generation}"


def cron_target(name: str) -> str:
    """Where the broker publishes when that instant has come."""
    return f"event.cron.{name}"


def trigger_consumer(name: str, generation: str) -> str:
    """The durable that all processes share which run a trigger. No name holds `=`, so two triggers never share one."""
    return f"trigger-{name.replace('.', '=')}-{generation}"


def capture_stream(name: str, generation: str) -> str:
    """A stream of the service's own, for a subject that no other stream keeps; named by the trigger that needed it
    first."""
    return CAPTURE_PREFIX + f"{name.replace('.', '=')}-{generation}"


def progress_key(trigger: str) -> str:
    """Beside a cron trigger: the last instant that was dealt with."""
    return f"{trigger}/progress"


def key_subject(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def bucket_stream(bucket: str) -> str:
    return f"KV_{bucket}"


def rerun_key(workflow: str, key: str) -> str:
    """What a caller's idempotency key stands for in the bucket of reruns."""
    return sha256(f"{workflow}\n{key}".encode()).hexdigest()


def owner_seq(headers: bytes) -> int | None:
    """What OWNER_SEQ says in a message's raw headers; None without it."""
    found = _OWNER_SEQ.search(headers)
    return None if found is None else int(found[1])


def definition_key(name: str, digest: str) -> str:
    return f"{name}/{digest}"


def step_key(run_id: str, step_id: str) -> str:
    return f"{run_id}.{step_id}"


def pause_key(run_id: str, step_id: str) -> str:
    """Beside a step's checkpoint: how often it was paused, and the label of the last pause."""
    return f"{run_id}.{step_id}/pause"


def telemetry_subject(kind: str, about: str) -> str:
    """`kind` is metrics or log, of a process, or span, of a trace."""
    return f"telemetry.{kind}.{about}"


def signal_key(run_id: str, name: str) -> str:
    return f"{run_id}.{name}"
