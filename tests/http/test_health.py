from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor
from nats.aio.msg import Msg

from penstock.actors.triggers.trigger_runner import open_triggers
from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import MIB, PARTITIONS
from penstock.config.process.background import all_of
from penstock.config.process.notice import Notice
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine import errors
from penstock.engine.errors import PenstockError
from penstock.http.app import create_app
from penstock.http.messages.errors import KINDS, status_of
from penstock.http.system.storage import KNOWN_S
from tests.support.conductor import Conductor
from tests.support.file_limits import limited
from tests.support.service import free_port
from tests.support.waiting import until


@pytest.fixture
def own_settings(data_dir: Path) -> BrokerSettings:
    """For a broker of the test's own, which it may stop."""
    return BrokerSettings(port=free_port(), data_dir=str(data_dir))


@contextmanager
def _running(settings: BrokerSettings) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def running(own_settings: BrokerSettings) -> Iterator[EmbeddedBroker]:
    with _running(own_settings) as broker:
        yield broker


@pytest.fixture
def own(running: EmbeddedBroker) -> BrokerSettings:
    return running.settings


async def test_a_service_with_a_broker_is_healthy(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/health")
    assert (200, {"status": "healthy"}) == (answer.status_code, answer.json)


async def test_ready_names_everything_that_is_missing(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/ready")
    assert (503, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert [
        "no engine has the partitions 0-31",
        "no engine runs the triggers",
        "the run index is not followed",
    ] == answer.text.splitlines()


@pytest.mark.usefixtures("index")
async def test_ready_needs_an_owner_of_every_partition_and_someone_who_runs_triggers(
    http: ASGIConductor, store: Store
) -> None:
    await _own(store, 0, [number for number in range(PARTITIONS) if number not in (3, 7, 8)])
    await _until_ready_says(http, "no engine has the partitions 3, 7-8")
    await _own(store, 1, [3, 7, 8])
    await _until_ready_says(http, "no engine runs the triggers\n")
    async with open_triggers(store):
        await _until_ready_says(http, '{"status":"ready"}')


async def test_without_storage_the_service_is_not_healthy(own: BrokerSettings) -> None:
    async with Conductor(create_app(Settings(broker=own))) as http:
        answer = await http.simulate_get("/health")
    assert 503 == answer.status_code
    assert "storage" in answer.text


async def test_a_full_storage_is_not_healthy(own: BrokerSettings) -> None:
    small = msgspec.structs.replace(own, max_store_bytes=8 * MIB)
    async with open_store(own, "test") as store, Conductor(create_app(Settings(broker=small))) as http:
        await provision(store.broker, own)
        assert 200 == (await http.simulate_get("/health")).status_code
        for number in range(8):
            await store.signals.put(f"r.{number}", b"x" * MIB)
        answer = await until(lambda: _unhealthy(http), 4 * KNOWN_S)
    assert "full" in answer


async def test_many_who_ask_for_health_cost_one_write_in_a_moment(http: ASGIConductor, store: Store) -> None:
    writes = names.bucket_stream(names.ENGINES)

    async def written() -> int:
        return int((await store.broker.api(f"STREAM.INFO.{writes}"))["state"]["last_seq"])

    await http.simulate_get("/health")
    before, begin = await written(), time.monotonic()
    answers = await all_of(http.simulate_get("/health") for _ in range(200))
    assert {200} == {answer.status_code for answer in answers}
    assert await written() - before <= 1 + (time.monotonic() - begin) / KNOWN_S


async def test_a_broker_that_stores_nothing_is_not_healthy_and_the_reason_is_given(
    own: BrokerSettings, running: EmbeddedBroker
) -> None:
    async with open_store(own, "test") as store, Conductor(create_app(Settings(broker=own))) as http:
        await provision(store.broker, own)
        assert running.command
        with limited([running.command.pid], 1):
            answer = await until(lambda: _unhealthy(http), 10)
            assert "the broker stores nothing: no answer to a write in 1.5 s\n" == answer
            assert answer in (await http.simulate_get("/ready")).text


async def test_what_the_supervisor_reports_is_the_reason_and_nothing_is_changed_then(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = Notice()
    for name, value in notice.environ.items():
        monkeypatch.setenv(name, value)
    async with Conductor(create_app(Settings(broker=broker_settings))) as http:
        notice.say("no space left on device")
        before = await store.history.last_seq()
        for path in ("/health", "/ready"):
            answer = await http.simulate_get(path)
            assert (503, "no space left on device") == (answer.status_code, answer.text.splitlines()[0])
        answer = await http.simulate_post("/runs", body=b'{"workflow":"w"}')
        assert (503, "no space left on device; nothing was done\n") == (answer.status_code, answer.text)
        for path in PUBLISHING:
            assert 500 == (await http.simulate_post(path)).status_code
        assert before == await store.history.last_seq()
        assert 404 == (await http.simulate_get(f"/runs/{'0' * 32}")).status_code
        notice.say("")
        assert 200 == (await http.simulate_get("/health")).status_code


NO_OBJECTS = [b"junk", b"[]", b"null", b"\xff", b"[" * 10_000]
NO_SHARDS = [*NO_OBJECTS, b"{}", b'{"partitions":5}', b'{"partitions":["x"]}', b'{"partitions":[-1,99]}']


async def test_junk_that_answers_pings_is_nobody(http: ASGIConductor, store: Store) -> None:
    for subject, bodies in (
        (names.ENGINE_PING, NO_SHARDS),
        (names.TRIGGERS_PING, NO_OBJECTS),
        (names.METRICS_PING, NO_SHARDS),
    ):
        for body in bodies:
            await _answer(store, subject, body)
    await store.broker.flush()
    answer = await http.simulate_get("/ready")
    assert (503, ["no engine has the partitions 0-31", "no engine runs the triggers"]) == (
        answer.status_code,
        answer.text.splitlines()[:2],
    )
    assert 200 == (await http.simulate_get("/metrics")).status_code


REQUESTS = [
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/workflows"),
    ("GET", "/workflows/w"),
    ("GET", "/runs"),
    ("GET", f"/runs/{'0' * 32}"),
    ("GET", f"/runs/{'0' * 32}/events"),
    ("GET", f"/runs/{'0' * 32}/scheduled"),
    ("DELETE", f"/runs/{'0' * 32}/scheduled"),
    ("GET", "/dead-letters"),
    ("GET", "/dead-letters/1"),
    ("DELETE", "/dead-letters/1"),
    ("POST", "/dead-letters/1/replay"),
    ("GET", "/workers"),
    ("GET", "/triggers"),
    ("DELETE", "/triggers/t"),
    ("POST", "/triggers/t/fire"),
    ("POST", "/v1/webhooks/t"),
    ("POST", "/runs"),
]
PUBLISHING = (f"/runs/{'0' * 32}/cancel", f"/runs/{'0' * 32}/signal/go")  # 500 in the specification


async def test_without_a_broker_everything_is_503_at_once_and_recovers_by_itself(own_settings: BrokerSettings) -> None:
    async with AsyncExitStack() as stack:
        with _running(own_settings):
            store = await stack.enter_async_context(open_store(own_settings, "test"))
            await provision(store.broker, own_settings)
            http = await stack.enter_async_context(Conductor(create_app(Settings(broker=own_settings))))
            await http.simulate_post("/workflows", body=b'{"name":"w","steps":[{"id":"a","task":"t"}]}')
            run_id = (await http.simulate_post("/runs", body=b'{"workflow":"w"}')).json["run_id"]
        while store.broker.connected:
            await http.simulate_get("/nowhere")
        began = time.monotonic()
        for method, path in REQUESTS:
            answer = await http.simulate_request(method, path, body=b'{"workflow":"w"}' if path == "/runs" else b"")
            assert (503, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
            assert "broker" in answer.text
        for path in PUBLISHING:
            answer = await http.simulate_post(path)
            assert (500, "the broker is not connected\n") == (answer.status_code, answer.text)
        assert time.monotonic() - began < 1
        with _running(own_settings):
            await _healthy(http)
            assert 200 == (await http.simulate_get(f"/runs/{run_id}")).status_code
            assert 201 == (await http.simulate_post("/runs", body=b'{"workflow":"w"}')).status_code


async def test_the_application_starts_before_its_broker(own_settings: BrokerSettings) -> None:
    async with Conductor(create_app(Settings(broker=own_settings))) as http:
        assert 503 == (await http.simulate_get("/health")).status_code
        with _running(own_settings):
            async with open_store(own_settings, "test") as store:
                await provision(store.broker, own_settings)
            await _healthy(http)


async def test_an_unexpected_error_is_500_and_reveals_nothing(http: ASGIConductor, store: Store) -> None:
    await store.bucket(names.DEFINITIONS).put("unreadable", b"no definition")
    try:
        answer = await http.simulate_get("/workflows/unreadable")
        assert (500, "internal error\n") == (answer.status_code, answer.text)
    finally:
        await store.bucket(names.DEFINITIONS).delete("unreadable")


async def test_workers_are_listed_without_what_is_no_registration(http: ASGIConductor, store: Store) -> None:
    registration = {"worker_id": "w1", "task_types": ["work"], "max_tasks": 4}
    await store.workers.put("w1", orjson.dumps(registration))
    for number, body in enumerate((b"", b"[]", b"{", b"\xff")):
        await store.workers.put(f"strange-{number}", body)
    assert [registration] == (await http.simulate_get("/workers")).json


def test_every_error_that_has_a_meaning_has_a_status() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)}
    assert kinds - {PenstockError, errors.UnknownWorkflow} == KINDS.keys()
    assert KINDS[errors.Invalid].status == status_of(errors.UnknownWorkflow("no such workflow"))


async def _healthy(http: ASGIConductor) -> None:
    async with asyncio.timeout(10):
        while (await http.simulate_get("/health")).status_code != 200:
            pass


async def _unhealthy(http: ASGIConductor) -> str | None:
    """What is told when it is 503."""
    answer = await http.simulate_get("/health")
    return answer.text if answer.status_code == 503 else None


async def _answer(store: Store, subject: str, body: bytes) -> None:
    """To everyone who asks, as long as the connection lives."""

    async def reply(msg: Msg) -> None:
        await store.broker.publish(msg.reply, body)

    await store.broker.subscribe(subject, reply)


async def _own(store: Store, shard: int, partitions: list[int]) -> None:
    """Answer pings as a shard does."""
    await _answer(store, names.ENGINE_PING, msgspec.json.encode({"shard": shard, "partitions": partitions}))
    await store.broker.flush()  # from here on, others are answered
    await store.broker.flush()


async def _until_ready_says(http: ASGIConductor, text: str) -> None:
    """On a machine under load, a shard's answer may come after /ready has stopped waiting for it."""

    async def says() -> bool:
        return text in (await http.simulate_get("/ready")).text

    await until(says)
