"""Every limit in one place: what is just allowed, and what is one too many. The numbers stand here as the specification
has them."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import triggers
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config import limits
from penstock.config.settings import BrokerSettings, HttpSettings, Settings, SettingsError, load
from penstock.http.app import create_app
from penstock.http.bridge.connection import heartbeat_stream
from tests.support.conductor import Conductor
from tests.support.little_room import FULL, fill, make_room, small_broker
from tests.support.own_broker import OwnBroker
from tests.support.waiting import until

MIB = 1_048_576
DAY_S = 86_400
NS = 1_000_000_000
TOKEN = "bridge"
SECRET = "webhook"
TASK = f"/v1/tasks/{'0' * 32}.s/resolve"
RUN = "0" * 32

Make = Callable[[int], bytes | str | dict[str, Any] | list[Any]]


class Limit(NamedTuple):
    """`request` makes what is so large (long, many); a path with `{}` takes it instead. `within` and `beyond` are
    statuses."""

    what: str
    most: int
    path: str
    request: Make
    within: int
    beyond: int
    method: str = "POST"


def definition(**more: Any) -> dict[str, Any]:
    return {"name": "limits.defined", "steps": [{"id": "a", "task": "t", **more}]}


def steps(count: int) -> dict[str, Any]:
    return {"name": "limits.steps", "steps": [{"id": f"s{n}", "task": "t"} for n in range(count)]}


def approval(timeout: str) -> dict[str, Any]:
    return {"name": "limits.approval", "steps": [{"id": "a", "type": "approval", "config": {"timeout": timeout}}]}


def trigger(name: str) -> dict[str, Any]:
    return {"name": name, "workflow": "one", "cron": {"expression": "0 0 1 1 *"}}


def poll(**more: Any) -> dict[str, Any]:
    """Answered at once: it asks for nothing but the end of its worker's other polls."""
    return {"task_types": ["t"], "max_tasks": 0, "timeout_ms": 0, "worker_id": "w", **more}


def text(size: int) -> str:
    """So many bytes as JSON."""
    return "x" * (size - 2)


def padded(size: int) -> bytes:
    return b'{"workflow":"one"}'.ljust(size)


def name(length: int) -> str:
    return "n" * length


LIMITS = [
    Limit("run input", MIB, "/runs", lambda n: {"workflow": "one", "input": text(n)}, 201, 413),
    Limit("request body", 8 * MIB, "/runs", padded, 201, 413),
    Limit("bulk inputs", 1000, "/runs/bulk", lambda n: {"workflow_id": "one", "inputs": [1] * n}, 201, 400),
    Limit("input of a bulk", MIB, "/runs/bulk", lambda n: {"workflow_id": "one", "inputs": [1, text(n)]}, 201, 413),
    Limit("steps", 1000, "/workflows", steps, 201, 400),
    Limit("retries", 100_000, "/workflows", lambda n: definition(retry={"max_attempts": n}), 201, 400),
    Limit("approval timeout in h", 168, "/workflows", lambda n: approval(f"{n}h"), 201, 400),
    Limit("approval timeout in ns", 168 * 3600 * NS, "/workflows", lambda n: approval(f"{n // NS}s{n % NS}ns"), 201,
        400),
    Limit("workflow name", 128, "/workflows", lambda n: {**definition(), "name": name(n)}, 201, 400),
    Limit("step id", 128, "/workflows", lambda n: definition(id=name(n)), 201, 400),
    Limit("task type", 128, "/workflows", lambda n: definition(task=name(n)), 201, 400),
    Limit("worker group", 128, "/workflows", lambda n: definition(worker_group=name(n)), 201, 400),
    Limit("trigger name", 128, "/triggers", lambda n: trigger(name(n)), 201, 400),
    Limit("signal name", 128, "/runs/{run}/signal/{}", name, 200, 400),
    Limit("signal", MIB, "/runs/{run}/signal/go", bytes, 200, 413),
    Limit("signal over the bridge", MIB, "/v1/runs/{run}/signals/go", bytes, 200, 413),
    Limit("idempotency key", 255, "/runs", lambda n: {"key": name(n)}, 201, 400),
    Limit("runs of a list", 10_000, "/runs?limit={}", str, 200, 400, "GET"),
    Limit("dead letters of a list", 1000, "/dead-letters?limit={}", str, 200, 400, "GET"),
    Limit("wait for a run in ms", 60_000, "/runs/{run}?wait_ms={}", str, 200, 400, "GET"),
    Limit("wait for the answer to a call in ms", 300_000, "/workflows/limits.over/call?timeout_ms={}", str, 404, 400),
    Limit("wait for a signal in ms", 60_000, "/v1/runs/{run}/signals/told?timeout_ms={}", str, 200, 400, "GET"),
    Limit("poll in ms", 60_000, "/v1/tasks/poll", lambda n: poll(timeout_ms=n), 200, 400),
    Limit("tasks of a poll", 1000, "/v1/tasks/poll", lambda n: poll(max_tasks=n, task_types=["limits.none"],
        worker_id=None), 200, 400),
    Limit("task types of a poll", 100, "/v1/tasks/poll", lambda n: poll(task_types=["t"] * n), 200, 400),
    Limit("worker id", 128, "/v1/tasks/poll", lambda n: poll(worker_id=name(n)), 200, 400),
    # Nobody has polled the task: what is within its limit is 404.
    Limit("pause in ms", 3_600_000, TASK, lambda n: {"action": "pause", "duration_ms": n}, 404, 400),
    Limit("label of a pause", 128, TASK, lambda n: {"action": "pause", "duration_ms": 1, "name": name(n)}, 404, 400),
    Limit("step output", MIB, TASK, lambda n: {"action": "complete", "output": text(n)}, 404, 413),
    Limit("next iteration's input", MIB, TASK, lambda n: {"action": "continue", "output": text(n)}, 404, 413),
    Limit("checkpoint", MIB, TASK, lambda n: {"action": "checkpoint", "data": text(n)}, 404, 413),
    Limit("checkpoint of a pause", MIB, TASK, lambda n: {"action": "pause", "duration_ms": 1, "checkpoint": text(n)},
        404, 413),
    Limit("webhook", MIB, "/v1/webhooks/limits", lambda n: orjson.dumps(text(n)), 202, 413),
    Limit("input of a fired trigger", MIB, "/triggers/limits/fire", lambda n: orjson.dumps(text(n)), 201, 413),
]  # fmt: skip


@pytest.fixture
async def limited(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    settings = Settings(broker=broker_settings, http=HttpSettings(bridge_token=TOKEN, webhook_secret=SECRET))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


@pytest.fixture
async def run_id(limited: ASGIConductor, store: Store) -> str:
    """A run that has ended, with a signal that was told."""
    await triggers.put(store, {"name": "limits", "workflow": "one", "webhook": {}})
    found = str((await limited.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"])
    await limited.simulate_post(f"/runs/{found}/signal/told", body=b"1")
    await limited.simulate_post(f"/runs/{found}/cancel")
    return found


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what)
async def test_the_limit_is_allowed_and_one_more_is_not(limited: ASGIConductor, run_id: str, limit: Limit) -> None:
    assert limit.within == (await ask(limited, run_id, limit, limit.most)).status_code
    refused = await ask(limited, run_id, limit, limit.most + 1)
    assert (limit.beyond, "text/plain; charset=utf-8") == (refused.status_code, refused.headers["content-type"])


async def ask(http: ASGIConductor, run_id: str, limit: Limit, size: int) -> Result:
    asked = limit.request(size)
    path, body, headers = limit.path.replace("{run}", run_id), b"", {"Authorization": f"Bearer {TOKEN}"}
    match asked:
        case str():
            path = path.replace("{}", asked)
        case bytes():
            body = asked
        case {"key": key}:
            body, headers["Idempotency-Key"] = b'{"workflow":"one"}', str(key)
        case _:
            body = orjson.dumps(asked)
    headers["X-Signature-256"] = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    path, _, query = path.partition("?")
    return await http.simulate_request(limit.method, path, query_string=query, body=body, headers=headers)


STREAMS: dict[tuple[str, str], object] = {
    ("WORKFLOW_HISTORY", "duplicate_window"): 5 * NS,
    ("WORKFLOW_HISTORY", "max_age"): 0,
    ("WORKFLOW_HISTORY", "max_bytes"): -1,
    ("WORKFLOW_HISTORY", "max_msgs"): -1,
    ("WORKFLOW_HISTORY", "retention"): "limits",
    ("TELEMETRY", "duplicate_window"): 5 * NS,
    ("TELEMETRY", "max_age"): 7 * DAY_S * NS,
    ("TELEMETRY", "max_bytes"): 1024 * MIB,
    ("LOGS", "max_age"): 7 * DAY_S * NS,
    ("LOGS", "max_bytes"): 1024 * MIB,
    ("CHUNKS", "max_age"): 7 * DAY_S * NS,
    ("CHUNKS", "max_bytes"): 1024 * MIB,
    ("PROGRESS", "storage"): "memory",
    ("DEAD_LETTERS", "max_age"): 30 * DAY_S * NS,
    ("DEAD_LETTERS", "duplicate_window"): 120 * NS,
    ("EVENTS", "duplicate_window"): 120 * NS,
    ("TASK_QUEUES", "duplicate_window"): 120 * NS,
    ("TASK_QUEUES", "retention"): "workqueue",
    ("STICKY_TASKS", "retention"): "workqueue",
    ("KV_workers", "max_age"): 60 * NS,
}


async def test_streams_and_buckets_have_their_limits(store: Store) -> None:
    configs = {name: (await store.broker.api(f"STREAM.INFO.{name}"))["config"] for name, _ in STREAMS}
    assert STREAMS == {(name, field): configs[name].get(field, 0) for name, field in STREAMS}


async def test_history_is_bounded_only_when_that_is_set(tmp_path: Path) -> None:
    settings = load(
        {"history_max_age": "30d", "history_max_bytes": "50MiB", "data_dir": str(tmp_path)}, {"SERVICE_CONFIG": ""}
    ).settings.broker
    broker = OwnBroker(tmp_path)
    bounded = msgspec.structs.replace(settings, url=broker.settings.url)
    broker.start()
    try:
        async with open_store(bounded, "test") as store:
            await provision(store.broker, bounded)
            config = (await store.broker.api("STREAM.INFO.WORKFLOW_HISTORY"))["config"]
    finally:
        broker.stop()
    assert (30 * DAY_S * NS, 50 * MIB) == (config["max_age"], config["max_bytes"])


async def test_a_full_store_takes_no_more_and_again_when_there_is_room(tmp_path: Path) -> None:
    """`max_store_bytes` is the broker's own bound: whatever is written, the files stay within it."""
    with small_broker(tmp_path) as broker:
        async with (
            open_store(broker.settings, "test") as store,
            Conductor(create_app(Settings(broker=broker.settings))) as http,
        ):
            await provision(store.broker, broker.settings)
            await http.simulate_post("/workflows", json=definition())
            run_id = (await http.simulate_post("/runs", json={"workflow": "limits.defined"})).json["run_id"]
            kept = await fill(store)
            assert 10 <= kept <= 16  # the one that reaches the bound is still taken
            start = orjson.dumps({"workflow": "limits.defined", "input": text(MIB)})
            bulk = orjson.dumps({"workflow_id": "limits.defined", "inputs": [1, 2]})
            later = orjson.dumps({"workflow": "limits.defined", "run_at": "2099-01-01T00:00:00Z"})
            for path, body in {
                "/runs": start,
                "/runs/bulk": bulk,
                "/runs#later": later,
                "/workflows": orjson.dumps({**definition(), "version": "2"}),
            }.items():
                refused = await http.simulate_post(path.partition("#")[0], body=body)
                assert (503, "1", f"{FULL}\n") == (refused.status_code, refused.headers["retry-after"], refused.text)
            refused = await http.simulate_post(f"/runs/{run_id}/signal/go", body=b"1")
            assert (500, f"{FULL}\n") == (refused.status_code, refused.text)
            health = await http.simulate_get("/health")
            assert (503, True) == (health.status_code, health.text.startswith("the broker's storage is full: "))
            await make_room(store)

            async def healthy() -> bool:  # what it tells is at most a quarter of a second old
                return (await http.simulate_get("/health")).status_code == 200

            await until(healthy)
            assert 201 == (await http.simulate_post("/runs", body=start)).status_code


def test_a_store_has_ten_gibibytes_unless_it_is_said() -> None:
    assert 10 * 1024 * MIB == load({}, {"SERVICE_CONFIG": ""}).settings.broker.max_store_bytes
    assert (
        10 * 1024 * MIB + 1
        == load({"max_store_bytes": str(10 * 1024 * MIB + 1)}, {"SERVICE_CONFIG": ""}).settings.broker.max_store_bytes
    )


def test_a_leaf_has_at_most_ten_remotes() -> None:
    hubs = [f"nats-leaf://hub-{number}" for number in range(11)]
    assert 10 == len(load({"leaf_remotes": ",".join(hubs[:10])}, {"SERVICE_CONFIG": ""}).settings.broker.leaf_remotes)
    with pytest.raises(SettingsError, match="at most 10 addresses"):
        load({"leaf_remotes": ",".join(hubs)}, {"SERVICE_CONFIG": ""})


def test_times_are_those_of_the_specification() -> None:
    """What takes too long to be waited for here, or has its behaviour shown elsewhere."""
    assert (30, 25, 5) == (limits.WORKER_HEARTBEAT_S, limits.BRIDGE_HEARTBEAT_S, limits.BRIDGE_COMMENT_S)
    beats = inspect.signature(heartbeat_stream).parameters
    assert (25, 5) == (beats["heartbeat_s"].default, beats["comment_s"].default)
    assert (15, 5) == (limits.SHUTDOWN_S, limits.HTTP_SHUTDOWN_S)
    assert (1, 300, 30, 10) == (
        limits.SCHEDULE_AHEAD_MIN_S,
        limits.BRIDGE_LEASE_S,
        limits.ACK_WAIT_S,
        limits.DELIVERIES_MAX,
    )
