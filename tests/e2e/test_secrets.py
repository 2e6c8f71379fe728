"""Secrets of the whole service: every feature is used with right and with wrong ones, and then everything that it left
is searched."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from tests.support.jwt_operator import Operator
from tests.support.searching import Client, Found, Search
from tests.support.server import server
from tests.support.service import PENSTOCK, Service, clean_environ, free_port
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
NAMES = ("api_token", "bridge_token", "webhook_secret", "trigger_secret", "broker_password", "leaf_password")
BODY = b'{"order": 17}'

WORKFLOWS: tuple[dict[str, Any], ...] = (
    {"name": "plain", "steps": [{"id": "a", "task": "plain"}]},
    {"name": "asks", "steps": [{"id": "ok", "type": "approval", "config": {"subject": "ask.people"}}]},
    {"name": "bridged", "steps": [{"id": "a", "task": "bridged"}]},
    {"name": "typed", "steps": [{"id": "a", "task": "plain"}], "input_schema": {"type": "object"}},
)
TRIGGERS: tuple[dict[str, Any], ...] = (
    {"name": "default", "workflow": "plain", "webhook": {}},
    {"name": "event", "workflow": "plain", "event": {"subject": "event.webhook.own"}},
    {"name": "typed", "workflow": "typed", "event": {"subject": "event.webhook.default"}, "enabled": False},
    {"name": "clock", "workflow": "plain", "cron": {"expression": "* * * * * *"}},
    {"name": "subject", "workflow": "plain", "subject": {"subject": "orders.>"}},
)


def environ(search: Search, directory: Path, credentials: Path, hub_port: int) -> dict[str, str]:
    """Every secret that a setting may hold, and the debug log."""
    (directory / "tmp").mkdir()
    return {
        "SERVICE_API_TOKEN": search.api_token,
        "SERVICE_BRIDGE_TOKEN": search.bridge_token,
        "SERVICE_WEBHOOK_SECRET": search.webhook_secret,
        "SERVICE_BROKER_USER": "service",
        "SERVICE_BROKER_PASSWORD": search.broker_password,
        "SERVICE_LEAF_REMOTES": f"nats-leaf://site:{search.leaf_password}@127.0.0.1:{hub_port}",
        "SERVICE_LEAF_CREDENTIALS": str(credentials),
        "SERVICE_LOG_LEVEL": "debug",
        "SERVICE_TELEMETRY_SAMPLE_RATIO": "1",
        "TMPDIR": str(directory / "tmp"),
    }


def test_no_secret_leaves_the_place_where_it_belongs(tmp_path: Path) -> None:
    search, port = Search(*NAMES), free_port()
    credentials = Operator().credentials(tmp_path / "site.creds")
    search.secrets["leaf_seed"] = credentials.read_text().splitlines()[5]
    hub = f'{Operator().block()}\nleafnodes {{ listen: "127.0.0.1:{port}" }}'  # of another operator: it refuses us
    (tmp_path / "service").mkdir()
    given = environ(search, tmp_path / "service", credentials, port)
    with server(tmp_path, hub), Service(tmp_path / "service", given, shards=1, http_workers=1) as service:
        (former,) = service.http_worker_pids()
        os.kill(former, signal.SIGKILL)
        asyncio.run(until_true(lambda: service.http_worker_pids() not in ([], [former])))
        service.await_ready()
        for name in ("shard-0", "broker"):
            service.await_restart(name, service.kill(name))
        service.await_ready()
        with worker(service, search) as pid:
            asyncio.run(use_and_read(service, search))
            search_arguments(search, service.pid, pid, *service.pids().values(), *service.http_worker_pids())
        use_the_command_line(service, search, given)
        written = {path for path in service.directory.rglob("*") if path.is_file() and "jetstream" not in path.parts}
    for path in written:
        search.add(f"file {path.name}", path.read_bytes() if path.exists() else b"")
    assert 0o600 == stat.S_IMODE((service.directory / "data" / "broker.conf").stat().st_mode)
    assert 0o700 == stat.S_IMODE((service.directory / "data").stat().st_mode)
    assert {
        Found("the request in a stream WORKFLOW_HISTORY", "approval_token"),
        Found("a stream KV_triggers", "trigger_secret"),
        Found("the events of a run", "approval_token"),
        Found("a notice", "approval_token"),
        Found("file broker.conf", "broker_password"),
        Found("file broker.conf", "leaf_password"),
    } == search.result()
    for expected in ("serve.log", "broker.log", "worker.log", "broker.conf"):
        assert expected in {path.name for path in written}


@contextmanager
def worker(service: Service, search: Search) -> Iterator[int]:
    """A worker straight on the broker, which wants to know who comes: its process id."""
    env = {**service.environ, "SERVICE_BROKER_USER": "service", "SERVICE_BROKER_PASSWORD": search.broker_password}
    with (service.directory / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.echo_worker", "plain"], env=env, cwd=ROOT, stdout=log, stderr=log
        )
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(20)


async def use_and_read(service: Service, search: Search) -> None:
    """Use every feature, then read every stream once all that is written now and then is there."""
    settings = BrokerSettings(url=service.broker_url, user="service", password=search.broker_password)
    async with open_store(settings, "test") as store:

        async def hear(msg: Any) -> None:
            search.add("a notice", msg.data)

        await store.broker.subscribe("ask.people", hear)
        await store.broker.flush()
        await asyncio.to_thread(use, service, search)
        for subject in ("telemetry.metrics.shard-0", "telemetry.log.supervisor"):
            await until(lambda subject=subject: store.reader.one("TELEMETRY", subject))  # type: ignore[misc]
        await read_streams(store, search)


def use(service: Service, search: Search) -> None:
    right = Client(service, search, search.api_token)
    for token in (None, search.api_token + "x", search.bridge_token, search.webhook_secret):
        stranger = Client(service, search, token)
        for path in ("/runs", "/triggers", "/metrics", "/dead-letters", "/nowhere"):
            stranger.get(401, path)
        stranger.post(401, "/workflows", json=WORKFLOWS[0])
    for workflow in WORKFLOWS:
        right.post(201, "/workflows", json=workflow)
    use_triggers(right, search)
    use_webhooks(right, search)
    use_runs(right)
    use_approvals(right, search)
    use_bridge(service, right, search)
    use_pages(right)


def use_triggers(right: Client, search: Search) -> None:
    own = {"name": "own", "workflow": "plain", "webhook": {"secret": search.trigger_secret}}
    for trigger in (own, *TRIGGERS):
        right.post(201, "/triggers", json=trigger)
    right.ask(200, "PUT", "/triggers/own", json=right.get(200, "/triggers/own").json())
    for wrong in ([search.trigger_secret], search.trigger_secret + "\n", {"of": search.trigger_secret}):
        right.post(400, "/triggers", json={**own, "webhook": {"secret": wrong}})
    right.post(400, "/triggers", json={**own, "webhook": {"secret": search.trigger_secret, "more": 1}})
    right.post(400, "/triggers", content=orjson.dumps(own)[:-2])
    for name in ("own", "event", "clock", "subject"):
        right.post(200, f"/triggers/{name}/test", content=BODY)
        right.post(201, f"/triggers/{name}/fire", content=BODY)
    right.get(200, "/triggers")
    right.ask(200, "DELETE", "/triggers/clock")


def use_webhooks(right: Client, search: Search) -> None:
    for name, secret in (("own", search.trigger_secret), ("default", search.webhook_secret)):
        path = f"/v1/webhooks/{name}"
        digest = "sha256=" + hmac.digest(secret.encode(), BODY, "sha256").hex()
        right.post(202, path, content=BODY, headers={"X-Signature-256": digest})
        right.post(
            400,
            path,
            content=b"",
            headers={"X-Signature-256": "sha256=" + hmac.digest(secret.encode(), b"", "sha256").hex()},
        )
        for wrong in (digest + "0", secret, f"sha256={secret}", ""):
            right.post(401, path, content=BODY, headers={"X-Signature-256": wrong})
        right.post(
            401,
            path,
            content=BODY,
            headers={"webhook-id": secret, "webhook-timestamp": secret, "webhook-signature": secret},
        )


def use_runs(right: Client) -> None:
    run_id = right.post(201, "/runs", json={"workflow": "plain", "input": {"n": 1}}).json()["run_id"]
    assert "completed" == right.get(200, f"/runs/{run_id}?wait_ms=20000").json()["status"]
    right.post(409, f"/runs/{run_id}/cancel")
    right.post(200, f"/runs/{run_id}/signal/go", content=BODY)
    right.get(200, f"/runs/{run_id}/events")
    right.post(400, "/runs", json={"workflow": "typed", "input": 1})
    later = right.post(201, "/runs", json={"workflow": "plain", "run_at": "2099-01-01T00:00:00Z"}).json()["run_id"]
    right.get(200, f"/runs/{later}/scheduled")
    right.ask(200, "DELETE", f"/runs/{later}/scheduled")
    right.post(201, "/runs/bulk", json={"workflow_id": "plain", "inputs": [1, 2]})
    right.post(200, "/runs/cancel", json={"workflow_id": "plain", "dry_run": True})
    right.post(200, "/runs/retry", json={"workflow_id": "plain", "mode": "rerun"})


def use_approvals(right: Client, search: Search) -> None:
    run_id = right.post(201, "/runs", json={"workflow": "asks"}).json()["run_id"]
    token = asyncio.run(until(lambda: asked(right, run_id)))
    assert token
    search.secrets["approval_token"] = token
    path = f"/runs/{run_id}/approval/ok"
    for query, status in (
        (f"action=approve&token={token}0", 401),
        (f"action=approve&token={token[:-1]}", 401),
        (f"action=perhaps&token={token}", 400),
        (f"action=approve&token={token}&token={token}", 400),
        (f"action=approve&token={token}", 200),
        (f"action=reject&token={token}", 409),
    ):
        right.post(status, f"{path}?{query}")
    right.get(200, f"/runs/{run_id}?wait_ms=20000")


async def asked(right: Client, run_id: str) -> str | None:
    events = right.get(200, f"/runs/{run_id}/events", place="the events of a run").json()
    return next((event["payload"]["token"] for event in events if event["type"] == "approval.requested"), None)


def use_bridge(service: Service, right: Client, search: Search) -> None:
    asking = {"task_types": ["bridged"], "max_tasks": 1, "timeout_ms": 20_000}
    for token in (None, search.bridge_token + "x", search.api_token):
        stranger = Client(service, search, token)
        for path in ("/v1/tasks/poll", "/v1/workers/connect", "/v1/tasks/x/resolve"):
            stranger.post(401, path, json=asking)
    bridge = Client(service, search, search.bridge_token)
    bridge.connect("over-http")
    bridge.post(400, "/v1/tasks/poll", json={**asking, "token": search.bridge_token})
    for action in (
        {"action": "complete", "output": 1},
        {"action": "fail", "error": "no", "failure_type": "non_retriable"},
    ):
        run_id = right.post(201, "/runs", json={"workflow": "bridged"}).json()["run_id"]
        (task,) = bridge.post(200, "/v1/tasks/poll", json=asking).json()
        for one in ({"action": "checkpoint", "data": 1}, action):
            bridge.post(200, f"/v1/tasks/{task['task_id']}/resolve", json=one)
        bridge.post(404, "/v1/tasks/nobody/resolve", json=action)
        right.get(200, f"/runs/{run_id}?wait_ms=20000")
    bridge.post(200, f"/v1/runs/{run_id}/signals/go", content=BODY)
    right.post(200, "/runs/retry", json={"workflow_id": "bridged", "mode": "replay"})


def use_pages(right: Client) -> None:
    for path in (
        "/runs",
        "/workflows",
        "/workers",
        "/triggers/own",
        "/dead-letters",
        "/metrics",
        "/openapi.json",
        "/schemas/definition.json",
        "/docs",
    ):
        right.get(200, path)
    for path in ("/health", "/ready", "/health/telemetry"):
        right.get(200, path)
    right.get(404, "/runs/nobody")
    right.ask(405, "PATCH", "/runs")


def use_the_command_line(service: Service, search: Search, given: Mapping[str, str]) -> None:
    """What it prints for who has the settings, and the ends of processes that cannot start."""
    at = {**clean_environ(), **given, "SERVICE_URL": service.url, "SERVICE_DATA_DIR": str(service.directory / "data")}
    trigger = ("trigger", "create", "plain", "--webhook", "--name", "own", "--secret", search.trigger_secret)
    for arguments in (
        ("config",),
        ("config", "--json"),
        trigger,
        (*trigger, "--json"),
        ("trigger", "list"),
        ("trigger", "show", "own"),
    ):
        assert 0 == printed(search, at, *arguments)
    assert 1 == printed(search, {**at, "SERVICE_API_TOKEN": search.api_token + "x"}, "run", "list")
    assert 1 == printed(search, at, "serve", f"--broker-port={free_port()}")  # the data directory is in use
    elsewhere = {
        **at,
        "SERVICE_BROKER_URL": service.broker_url,
        "SERVICE_BROKER_PASSWORD": search.broker_password + "x",
    }
    assert 1 == printed(search, elsewhere, "api")
    inside = service.broker_url.replace("://", f"://service:{search.broker_password}x@")
    assert 1 == printed(
        search,
        {**elsewhere, "SERVICE_BROKER_URL": inside, "SERVICE_BROKER_USER": "", "SERVICE_BROKER_PASSWORD": ""},
        "api",
    )
    for name in ("API_TOKEN", "BRIDGE_TOKEN", "WEBHOOK_SECRET", "BROKER_PASSWORD", "LEAF_REMOTES"):
        assert 2 == printed(search, {**at, f"SERVICE_{name}": at[f"SERVICE_{name}"] + "\n"}, "config")


def printed(search: Search, at: Mapping[str, str], *arguments: str) -> int:
    done = subprocess.run(
        [PENSTOCK, *arguments], env=at, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
    )
    search.add(f"penstock {arguments[0]}", done.stdout + done.stderr)
    assert done.stdout + done.stderr
    return done.returncode


def search_arguments(search: Search, *pids: int) -> None:
    for pid in pids:
        text = Path(f"/proc/{pid}/cmdline").read_text()
        assert text
        search.add("arguments", text)


async def read_streams(store: Store, search: Search) -> None:
    """Every message of every stream and bucket, headers and bodies."""
    streams = (await store.broker.api("STREAM.LIST"))["streams"]
    names = {stream["config"]["name"] for stream in streams}
    assert {
        "WORKFLOW_HISTORY",
        "TASK_QUEUES",
        "DEAD_LETTERS",
        "TELEMETRY",
        "EVENTS",
        "STICKY_TASKS",
        "KV_approval_tokens",
    } <= names
    for name in names:
        seq = 0
        while message := await following(store, name, seq):
            seq = message["seq"]
            body = base64.b64decode(message.get("data", ""))
            request = "the request in " if b'"approval.requested"' in body else ""
            search.add(
                f"{request}a stream {name}",
                base64.b64decode(message.get("hdrs", "")) + message["subject"].encode() + body,
            )


async def following(store: Store, stream: str, seq: int) -> dict[str, Any] | None:
    try:
        found = await store.broker.api(f"STREAM.MSG.GET.{stream}", {"seq": seq + 1, "next_by_subj": ">"})
    except ApiError as error:
        if error.err_code != Code.MESSAGE_NOT_FOUND:
            raise
        return None
    message: dict[str, Any] = found["message"]
    return message


def test_the_search_finds_what_is_there() -> None:
    search = Search(*NAMES)
    search.add("here", f"before{search.api_token}after")
    search.add("there", search.bridge_token.encode())
    search.add("nowhere", search.broker_password[:-1])
    assert {Found("here", "api_token"), Found("there", "bridge_token")} == search.result()
