"""Every key of a record in a bucket is built here and nowhere else; names.py has the buckets."""

from __future__ import annotations

from hashlib import sha256

from penstock.broker.names import partition

# Prefixes of keys in the bucket of engines; a dot and an id follow.
MEMBER = "member"  # a shard that is alive
CLAIM = "partition"  # who owns it
DRAINED = "drained"  # a draining engine
HANDLED = "handled"  # how far the owner of a partition is
PROBE = "probe"  # written only to test whether a write succeeds

CAPTURES_KEY = "/captures"  # in the bucket of triggers: the existing streams and their users


def member_key(member_id: str) -> str:
    return f"{MEMBER}.{member_id}"


def claim_key(number: int) -> str:
    return f"{CLAIM}.{number}"


def handled_key(number: int) -> str:
    return f"{HANDLED}.{number}"


def drained_key(engine: str) -> str:
    return f"{DRAINED}.{engine}"


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


def route_key(route: str) -> str:
    """The key of the name of the trigger that has this route (`POST orders/new`)."""
    return f"routes/{sha256(route.encode()).hexdigest()[:32]}"


def progress_key(trigger: str) -> str:
    """The key of a cron trigger's last handled instant."""
    return f"{trigger}/progress"


def rerun_key(workflow: str, key: str) -> str:
    """The key in the bucket of reruns for a caller's idempotency key."""
    return sha256(f"{workflow}\n{key}".encode()).hexdigest()


def import_key(run_id: str, import_id: str) -> str:
    """The key of the document of an imported run; `*` for the id: a filter for all of the run."""
    return f"{run_id}.{import_id}"


def definition_key(name: str, digest: str) -> str:
    return f"{name}/{digest}"


def definition_keys(name: str) -> str:
    """A filter that all keys of a workflow's definitions match, among others."""
    return ".".join([*name.split(".")[:-1], "*"])


def versions_key(name: str) -> str:
    """Beside a workflow's latest definition: the list of its versions. No digest is this word."""
    return f"{name}/versions"


def limit_key(kind: str, scope: str) -> str:
    """The key of what is said of all limits of a kind and scope."""
    return f"{kind}/{scope}"


def limit_of(key: str) -> tuple[str, str]:
    """Kind and scope of such a key."""
    kind, _, scope = key.partition("/")
    return kind, scope


def step_key(run_id: str, step_id: str) -> str:
    return f"{run_id}.{step_id}"


def pause_key(run_id: str, step_id: str) -> str:
    """The key, beside a step's checkpoint, of the number of its pauses and the label of the last."""
    return f"{run_id}.{step_id}/pause"


def signal_key(run_id: str, name: str) -> str:
    return f"{run_id}.{name}"
