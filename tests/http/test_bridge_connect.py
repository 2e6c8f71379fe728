"""Connecting a worker: a stream of heartbeats, and a registration that lasts as long. And who may use the bridge at
all."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import orjson
import pytest

from penstock.broker.store import Store
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.registrations import register
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from penstock.http.bridge.connection import CancelInbox, heartbeat_stream
from tests.http.bridge import TOKEN
from tests.support.conductor import Conductor
from tests.support.waiting import until

PATHS = (
    ("POST", "/v1/workers/connect"),
    ("POST", "/v1/tasks/poll"),
    ("POST", "/v1/tasks/exchange"),
    ("POST", "/v1/tasks/x/resolve"),
    ("GET", f"/v1/runs/{'0' * 32}/signals/go"),
    ("POST", f"/v1/runs/{'0' * 32}/signals/go"),
    ("GET", "/v1/tasks/nowhere"),
)

RULE = "may hold only A-Z a-z 0-9 _ - and single dots between them"


async def test_worker_is_registered_as_long_as_its_stream_is_open(store: Store, bridge: httpx2.AsyncClient) -> None:
    body = {
        "worker_id": "w-1",
        "task_types": ["a", "b"],
        "max_tasks": 4,
        "metadata": {"zone": "x"},
        "language": "shell",
    }
    body |= {"worker_group": "gpu"}
    async with bridge.stream("POST", "/v1/workers/connect", json=body) as answer:
        assert (200, "text/event-stream") == (answer.status_code, answer.headers["content-type"])
        lines = answer.aiter_text()  # as long as it is referred to, the connection is open
        assert ":\n\n" == await anext(lines)
        entry = await store.workers.get("w-1")
        assert entry is not None
        found = orjson.loads(entry.value)
        assert found.pop("last_seen").endswith("Z")
        assert {**body, "transport": "bridge", "hostname": "", "pid": 0, "version": ""} == found

    async def gone() -> bool:
        return await store.workers.get("w-1") is None

    await until(gone, 5)


async def test_second_connection_of_a_worker_outlives_the_first(store: Store, bridge: httpx2.AsyncClient) -> None:
    body = {"worker_id": "w-2", "task_types": ["a"]}
    async with bridge.stream("POST", "/v1/workers/connect", json=body) as first:
        earlier = first.aiter_text()
        await anext(earlier)
        async with bridge.stream("POST", "/v1/workers/connect", json=body) as second:
            lines = second.aiter_text()
            await anext(lines)
            await first.aclose()
            assert ":\n\n" == await anext(lines)  # five seconds later: the first one's end is long over
            assert await store.workers.get("w-2") is not None


async def test_heartbeat_has_the_time_and_renews_the_registration(store: Store) -> None:
    entry, left = WorkerRegistration(worker_id="w-3", task_types=("a",)), asyncio.Event()
    revision = await register(store.workers, entry)
    inbox = CancelInbox()
    lines = heartbeat_stream(
        store.workers, entry, revision, left, asyncio.Event(), inbox, heartbeat_s=0.05, comment_s=0.02
    )
    seen = [await anext(lines)]
    while not seen[-1].startswith(b"event"):
        seen.append(await anext(lines))
    assert {b":\n\n"} == set(seen[:-1])
    head, data = seen[-1].decode().rstrip().split("\n")
    assert "event: heartbeat" == head
    assert orjson.loads(data.removeprefix("data: "))["at"].endswith("Z")
    renewed = await store.workers.get("w-3")
    assert renewed is not None
    assert renewed.revision > revision
    left.set()
    assert [] == [line async for line in lines if b"event" in line]
    assert await store.workers.get("w-3") is None


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ({}, ["worker_id is required", "task_types is required"]),
        ({"worker_id": "a/b", "task_types": []}, [f'worker_id "a/b" {RULE}', "task_types is empty"]),
        (
            {"worker_id": "w", "task_types": ["a", "penstock.other"]},
            ['task_types[1] "penstock.other" is reserved: task types that begin with penstock. are the service\'s own'],
        ),
        (
            {"worker_id": "w", "task_types": ["penstock.http"]},
            ['task type "penstock.http" is reserved: `penstock worker http` serves it'],
        ),
        ({"worker_id": "w", "task_types": ["a"], "worker_group": "a b"}, [f'worker_group "a b" {RULE}']),
        ({"worker_id": "w", "task_types": ["a"], "max_tasks": 0},
         ["max_tasks must be a whole number from 1 to 2147483648, not 0"]),
        ({"worker_id": "w", "task_types": ["a"], "metadata": {"k": 1}},
         ['metadata "k" must be a string, not a number']),
        ({"worker_id": "w", "task_types": ["a", 7]}, ["task_types[1] must be a string, not a number"]),
        ({"worker_id": "w", "task_types": ["a"], "max_tasks": True}, ["max_tasks must be a whole number, not true"]),
        ({"worker_id": "w", "task_types": ["a"], "pid": 10**30},
         [f"pid must be a whole number from 0 to 4294967295, not {10**30}"]),
        ({"worker_id": "w", "task_types": ["a"], "transport": "nats"}, ['unknown field "transport"']),
    ],
)  # fmt: skip
async def test_bad_connection_names_every_offender(
    bridge: httpx2.AsyncClient, body: dict[str, Any], problems: list[str]
) -> None:
    answer = await bridge.post("/v1/workers/connect", json=body)
    assert (400, problems) == (answer.status_code, answer.text.splitlines())


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ünicode"])
async def test_missing_or_wrong_token_is_401(
    bridge: httpx2.AsyncClient, method: str, path: str, given: str | None
) -> None:
    header = b"" if given is None else b" ".join((b"Bearer", given.encode())).strip()
    answer = await bridge.request(method, path, headers=[(b"authorization", header)], json={})
    assert (401, "Bearer") == (answer.status_code, answer.headers["www-authenticate"])
    assert TOKEN not in answer.text


async def test_right_token_lets_in(bridge: httpx2.AsyncClient) -> None:
    assert 400 == (await bridge.post("/v1/tasks/poll", json={})).status_code
    assert 404 == (await bridge.get("/v1/tasks/nowhere")).status_code
    assert 405 == (await bridge.get("/v1/tasks/poll")).status_code
    assert (
        401 == (await bridge.post("/v1/tasks/poll", json={}, headers={"Authorization": f"Basic {TOKEN}"})).status_code
    )
    assert (
        400 == (await bridge.post("/v1/tasks/poll", json={}, headers={"Authorization": f"bearer  {TOKEN}"})).status_code
    )


@pytest.mark.parametrize("api_token", [None, "other"])
async def test_bridge_without_a_token_is_closed_and_the_rest_open(
    broker_settings: BrokerSettings, store: Store, api_token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(broker=broker_settings, http=HttpSettings(bridge_token=None, api_token=api_token))
    async with Conductor(create_app(settings)) as closed:
        for method, path in PATHS:
            for headers in (
                {},
                {"Authorization": "Bearer "},
                {"Authorization": "Bearer None"},
                {"Authorization": "Bearer other"},
            ):
                assert 401 == (await closed.simulate_request(method, path, json={}, headers=headers)).status_code
        assert 404 == (await closed.simulate_post("/v1/webhooks/nowhere", json={})).status_code
    assert "bridge_closed" in caplog.text


async def test_api_token_is_no_bridge_token(broker_settings: BrokerSettings, store: Store) -> None:
    settings = Settings(broker=broker_settings, http=HttpSettings(bridge_token=TOKEN, api_token="api"))
    async with Conductor(create_app(settings)) as both:
        bridge, api = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer api"}
        assert 400 == (await both.simulate_post("/v1/tasks/poll", json={}, headers=bridge)).status_code
        assert 401 == (await both.simulate_post("/v1/tasks/poll", json={}, headers=api)).status_code
        assert 401 == (await both.simulate_get("/workers", headers=bridge)).status_code
        assert 200 == (await both.simulate_get("/workers", headers=api)).status_code
