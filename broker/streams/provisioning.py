"""Every stream and bucket, in one table. Creating them is idempotent; an existing one that does not match is an error
and is never changed."""

from __future__ import annotations

from typing import Any

from penstock.broker import names
from penstock.broker.nats.connection import Broker, address
from penstock.broker.nats.errors import ApiError, Code
from penstock.config import limits
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Unavailable

NS = 10**9

# A limit that no run reaches: the broker gives a stream with one, and without another limit, blocks of 4 MB in place of
# 8. To read an old event it reads a whole block.
SMALL_BLOCKS = 1 << 40

# Buckets whose entries stay until somebody removes them.
LASTING = (
    names.DEFINITIONS,
    names.RUNS,
    names.SIGNALS,
    names.CHECKPOINTS,
    names.STICKY_BINDINGS,
    names.APPROVAL_TOKENS,
    names.TRIGGERS,
    names.ENGINES,
    names.EVENT_WAITS,
    names.API_KEYS,
    names.LIMIT_CONFIGS,
)

# Buckets to which workers of any origin write: the broker refuses larger entries.
PAYLOADS = {names.CHECKPOINTS: limits.PAYLOAD_BYTES_MAX, names.SIGNALS: limits.SIGNAL_BYTES_MAX}
VALUE_HEADERS_BYTES_MAX = 1024  # they count too: an expected revision, an id

log = get_logger()

# What makes a stream another stream. Retention by age and size may be set otherwise by an operator: that is no
# conflict.
IDENTITY = (
    "subjects",
    "retention",
    "storage",
    "subject_transform",
    "republish",
    "max_msgs_per_subject",
    "allow_atomic",
    "allow_msg_schedules",
)


def streams(settings: BrokerSettings) -> list[dict[str, Any]]:
    """The whole table, in the broker's form: streams first, then buckets."""
    history = {
        "subjects": ["history.*", "schedule.>"],
        "subject_transform": {
            "src": "history.*",
            "dest": f"history.{{{{partition({limits.PARTITIONS},1)}}}}.{{{{wildcard(1)}}}}",
        },
        "duplicate_window": int(limits.DEDUP_WINDOW_S * NS),
        "republish": {"src": "history.*.*", "dest": "watch.{{wildcard(2)}}"},
        "allow_atomic": True,
        "allow_msg_schedules": True,
        "max_age": int((settings.history_max_age or 0) * NS),
        "max_bytes": settings.history_max_bytes or -1,
        "max_msgs_per_subject": SMALL_BLOCKS,
    }
    telemetry = {
        "subjects": ["telemetry.>"],
        "duplicate_window": int(limits.DEDUP_WINDOW_S * NS),
        "max_age": int(limits.TELEMETRY_AGE_S_MAX * NS),
        "max_bytes": _share(settings, limits.TELEMETRY_BYTES_MAX),
    }
    events = {"subjects": ["event.>", "cron.>"], "allow_msg_schedules": True}
    age = int(limits.AUDIT_AGE_S_MAX * NS)
    audit = {"subjects": [names.AUDIT_FILTER], "max_age": age, "max_msgs_per_subject": 1}
    refusals = {"subjects": [names.REFUSALS_SUBJECT], "max_age": age, "max_bytes": _refusals_bytes(settings)}
    dead = {"subjects": ["dead.>"], "max_age": int(limits.DEAD_LETTERS_AGE_S_MAX * NS)}
    return [
        _stream(settings, names.HISTORY, history),
        _stream(settings, names.TASKS, {"subjects": ["task.>"], "retention": "workqueue", "allow_atomic": True}),
        _stream(settings, names.STICKY, {"subjects": ["sticky.>"], "retention": "workqueue"}),
        _stream(settings, names.DEAD, dead),
        _stream(settings, names.EVENTS, events),
        _stream(settings, names.AUDIT, audit),
        _stream(settings, names.REFUSALS, refusals),
        _stream(settings, names.TELEMETRY, telemetry),
        _stream(settings, names.ARCHIVE, {"subjects": [names.ARCHIVED]}),
        _said(settings, names.LOGS, "log"),
        _said(settings, names.CHUNKS, "stream"),
        _progress(settings),
        *(_bucket(settings, name) for name in LASTING),
        _bucket(settings, names.WORKERS, ttl_s=limits.WORKER_TTL_S),
        _bucket(settings, names.RERUN_KEYS, ttl_s=limits.RERUN_KEY_TTL_S),
        _bucket(settings, names.SESSIONS, ttl_s=limits.SESSION_S),
        _bucket(settings, names.IMPORTS, ttl_s=settings.history_max_age or 0),
        _bucket(settings, names.EVENT_KEYS, ttl_s=limits.EVENT_KEY_TTL_S),
        _leases(settings),
    ]


def _share(settings: BrokerSettings, most: int) -> int:
    """The size limit of a stream that may have so much. The broker reserves it, so in a small embedded store it must
    leave room for the rest."""
    return min(most, settings.max_store_bytes // 10) if settings.embedded else most


def _said(settings: BrokerSettings, name: str, kind: str) -> dict[str, Any]:
    """The stream of what steps say, log lines or chunks. One step's flood pushes out its own messages."""
    more = {
        "subjects": [f"{kind}.*.>"],
        "republish": {"src": f"{kind}.*.>", "dest": f"watch.{kind}.{{{{wildcard(1)}}}}.>"},
        "duplicate_window": int(limits.DEDUP_WINDOW_S * NS),
        "max_age": int(limits.SAID_AGE_S_MAX * NS),
        "max_bytes": _share(settings, limits.SAID_BYTES_MAX),
        "max_msgs_per_subject": limits.SAID_MESSAGES_MAX,
        "max_msg_size": limits.SAID_MESSAGE_BYTES_MAX + VALUE_HEADERS_BYTES_MAX,
    }
    return _stream(settings, name, more)


def _progress(settings: BrokerSettings) -> dict[str, Any]:
    """The stream with the latest progress of each step, in memory: it is gone with the broker, and said again."""
    more = {
        "subjects": ["progress.*.>"],
        "storage": "memory",
        "duplicate_window": int(limits.DEDUP_WINDOW_S * NS),
        "max_age": int(limits.PROGRESS_AGE_S_MAX * NS),
        "max_bytes": limits.PROGRESS_BYTES_MAX,
        "max_msgs_per_subject": 1,
    }
    return _stream(settings, names.PROGRESS, more)


def _refusals_bytes(settings: BrokerSettings) -> int:
    """As `_telemetry_bytes`, for the refusals in the audit log."""
    share = settings.max_store_bytes // 100 if settings.embedded else limits.REFUSALS_BYTES_MAX
    return min(limits.REFUSALS_BYTES_MAX, share)


async def provision(broker: Broker, settings: BrokerSettings) -> None:
    """Create what is missing. Raises Conflict that names every existing stream with another configuration, Unavailable
    as long as too few nodes of a cluster are up."""
    if settings.replicas > 1 and not broker.clustered:
        raise Conflict(
            f"replicas = {settings.replicas} needs a cluster: the broker at {address(settings)} is a server alone"
        )
    if broker.max_payload < limits.BODY_BYTES_MAX:
        log.warning("broker_max_payload_too_small", max_payload=broker.max_payload, wanted=limits.BODY_BYTES_MAX)
    wanted = streams(settings)
    problems = [problem for found in await all_of(_create(broker, one) for one in wanted) for problem in found]
    if problems:
        raise Conflict("\n".join(problems))


async def restore_leases(broker: Broker, settings: BrokerSettings) -> None:
    """Create the bucket of leases, and the stream of progress, again if they were lost with the broker's memory: a
    single server forgets even that they existed."""
    await _create(broker, _progress(settings))
    await _create(broker, {**_leases(settings), "metadata": {names.RESTORED: "true"}})


def _leases(settings: BrokerSettings) -> dict[str, Any]:
    return {**_bucket(settings, names.BRIDGE_LEASES, ttl_s=limits.BRIDGE_LEASE_TTL_S), "storage": "memory"}


def _stream(settings: BrokerSettings, name: str, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "retention": "limits",
        "storage": "file",
        "num_replicas": settings.replicas,
        "duplicate_window": int(limits.DEDUP_WINDOW_BROKER_S * NS),
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "allow_direct": True,
        "allow_msg_ttl": True,
        **more,
    }


def _bucket(settings: BrokerSettings, name: str, ttl_s: float = 0) -> dict[str, Any]:
    window_s = min(limits.DEDUP_WINDOW_BROKER_S, ttl_s or limits.DEDUP_WINDOW_BROKER_S)
    return {
        **_stream(settings, names.bucket_stream(name), {"subjects": [names.key_subject(name, ">")]}),
        "max_msgs_per_subject": 1,
        "max_age": int(ttl_s * NS),
        "duplicate_window": int(window_s * NS),
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        **({"max_msg_size": PAYLOADS[name] + VALUE_HEADERS_BYTES_MAX} if name in PAYLOADS else {}),
    }


async def _create(broker: Broker, wanted: dict[str, Any]) -> list[str]:
    """Create one stream. Returns the differences to an existing one."""
    try:
        await broker.api(f"STREAM.CREATE.{wanted['name']}", wanted, timeout_s=10)
        return []
    except ApiError as error:
        if error.err_code == Code.TOO_FEW_NODES:
            raise Unavailable(f"cannot make the stream {wanted['name']}: {error}") from error
        if error.err_code != Code.STREAM_EXISTS:
            raise Conflict(f"cannot make the stream {wanted['name']}: {error}") from error
    found = (await broker.api(f"STREAM.INFO.{wanted['name']}"))["config"]
    if wanted.get("allow_atomic") and not found.get("allow_atomic") and wanted["name"] == names.TASKS:
        allowed = {**found, "allow_atomic": True}  # a former version made it without
        found = (await broker.api(f"STREAM.UPDATE.{wanted['name']}", allowed, timeout_s=10))["config"]
    return differences(wanted, found)


def differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Why an existing stream cannot be used, one sentence for each difference."""
    name = wanted["name"]
    problems = [
        f"the stream {name} exists with {field} = {found.get(field)!r}, expected {wanted[field]!r}"
        for field in IDENTITY
        if field in wanted and found.get(field) != wanted[field] and not _is_former(field, wanted, found)
    ]
    if found.get("num_replicas", 1) < wanted["num_replicas"]:
        problems.append(
            f"the stream {name} exists with {found['num_replicas']} replica(s), "
            f"at least {wanted['num_replicas']} wanted"
        )
    window = found.get("duplicate_window", 0)
    if window < limits.DEDUP_WINDOW_S * NS:
        problems.append(
            f"the stream {name} exists with duplicate_window = {window / NS:g} s, "
            f"at least {limits.DEDUP_WINDOW_S:g} s needed"
        )
    return problems


def _is_former(field: str, wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether a former version made the stream, with larger blocks: it may stay so."""
    return field == "max_msgs_per_subject" and (wanted[field], found.get(field)) == (SMALL_BLOCKS, -1)
