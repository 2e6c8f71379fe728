"""What workers of earlier versions sent is taken by today's service as it was then: their recorded requests over the
bridge, their recorded messages over the broker. recorded_workers.py says how they were recorded.

Today's answers and tasks may have more fields than the recorded ones, and no others than those may differ.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import orjson
import pytest
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg

from penstock.client import AsyncClient
from tests.e2e.recorded_workers import FOLDER, RUN, STEPS, TOKEN, WORKER, Exchange, Recording, Sent, ended, of_run
from tests.http.bridge import client
from tests.properties.recorded import SEAL, current, released, seal
from tests.support.service import Service
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
VERSIONS = sorted(path.name for path in FOLDER.iterdir())
WAIT_MS = 30_000
RECORDED = ("bridge.json", "broker.json", "limits.json")
versions = pytest.mark.parametrize("version", VERSIONS)
pytestmark = pytest.mark.timeout(180)


def recording(version: str, transport: str) -> Recording:
    return msgspec.json.decode((FOLDER / version / f"{transport}.json").read_bytes(), type=Recording)


def differences(recorded: Any, today: Any, where: str = "") -> list[str]:
    """Where today's value lacks something of the recorded one, or has another value in its place."""
    if isinstance(recorded, dict) and isinstance(today, dict):
        return [
            found
            for key, value in recorded.items()
            for found in (differences(value, today[key], f"{where}.{key}") if key in today else [f"no {where}.{key}"])
        ]
    if isinstance(recorded, list) and isinstance(today, list) and len(recorded) == len(today):
        pairs = enumerate(zip(recorded, today, strict=True))
        return [found for at, (one, other) in pairs for found in differences(one, other, f"{where}[{at}]")]
    return [] if recorded == today else [f"{where}: {today!r}, recorded as {recorded!r}"]


def test_a_difference_is_found_and_a_new_field_is_none() -> None:
    assert [] == differences({"a": [{"b": 1}]}, {"a": [{"b": 1, "new": 2}], "new": 3})
    assert [".a[0].b: 2, recorded as 1"] == differences({"a": [{"b": 1}]}, {"a": [{"b": 2}]})
    assert ["no .a"] == differences({"a": 1}, {"b": 1})
    assert [".a: [], recorded as [1]"] == differences({"a": [1]}, {"a": []})


@pytest.fixture
def service(tmp_path: Path) -> Any:
    with Service(tmp_path, {"SERVICE_BRIDGE_TOKEN": TOKEN}, shards=1, http_workers=1) as started:
        yield started


async def started(api: AsyncClient, kept: Recording) -> str:
    await api.register(orjson.dumps(kept.definition))
    return (await api.start(kept.definition["name"], orjson.dumps(kept.input))).run_id


def _of_this_run(value: Any, run_id: str) -> Any:
    return orjson.loads(orjson.dumps(value).replace(RUN.encode(), run_id.encode()))


def _patient(body: Any) -> Any:
    """The request, with the longest wait for a task: the machine may be slower than the one of the recording."""
    match body:
        case {"poll": poll}:
            return {**body, "poll": {**poll, "timeout_ms": WAIT_MS}}
        case {"timeout_ms": _}:
            return {**body, "timeout_ms": WAIT_MS}
    return body


@versions
async def test_the_requests_of_an_older_worker_over_the_bridge_are_answered_as_then(
    version: str, service: Service
) -> None:
    kept = recording(version, "bridge")
    [connect, *others] = kept.exchanges
    assert "/v1/workers/connect" == connect.path
    async with AsyncClient(service.url) as api, client(service.url, TOKEN) as http:
        run_id = await started(api, kept)
        async with http.stream("POST", connect.path, json=connect.body) as stream:
            assert 200 == stream.status_code

            async def registered() -> bool:
                return [WORKER] == [worker.worker_id for worker in await api.workers()]

            await until(registered)
            for exchange in others:
                await _exchanged(http, exchange, run_id)
        assert [] == differences(
            kept.ended, orjson.loads(of_run(orjson.dumps(await ended(api, service.url, run_id)).decode(), run_id))
        )


async def _exchanged(http: Any, exchange: Exchange, run_id: str) -> None:
    body = _patient(_of_this_run(exchange.body, run_id))
    content = b"" if body is None else orjson.dumps(body)
    answer = await http.request(exchange.method, exchange.path.replace(RUN, run_id), content=content)
    assert exchange.status == answer.status_code, answer.text
    assert [] == differences(_of_this_run(exchange.answer, run_id), answer.json()), exchange.path


class OlderWorker:
    """Sends what was recorded, and looks at the tasks that it is given. Owned by a test."""

    def __init__(self, broker: Nats, run_id: str) -> None:
        self._broker, self._run_id = broker, run_id
        self._consumer = ""
        self._queued: list[Any] = []
        self._task: Msg | None = None
        self.tasks = 0

    async def go_on(self, sent: Sent) -> None:
        subject, body = (text.replace(RUN, self._run_id) for text in (sent.subject, sent.body))
        if sent.kind == "task":
            self._queued.append(orjson.loads(body))
        elif sent.kind == "ack":
            assert self._task is not None
            await self._broker.publish(self._task.reply, body.encode())
            self._task = None
        elif subject.startswith("$JS.API.CONSUMER."):
            self._consumer = orjson.loads(body)["config"]["durable_name"]
            await self._stored(subject, body, {})
        else:
            if subject.startswith("history.") and self._task is None:
                await self._take()
            headers = {name: value.replace(RUN, self._run_id) for name, value in sent.headers.items()}
            await self._stored(subject, body, headers)

    async def _take(self) -> None:
        next_one = f"$JS.API.CONSUMER.MSG.NEXT.TASK_QUEUES.{self._consumer}"
        asked = orjson.dumps({"batch": 1, "expires": WAIT_MS * 1_000_000})
        inbox = self._broker.new_inbox()
        answers = await self._broker.subscribe(inbox, max_msgs=1)
        await self._broker.publish(next_one, asked, reply=inbox)
        self._task = await answers.next_msg(WAIT_MS / 1000 + 5)
        assert self._task.data, self._task.headers
        task = orjson.loads(self._task.data)
        if self._queued:  # else it is the one before, that was put aside
            assert [] == differences(self._queued.pop(0), task)
        self.tasks += 1

    async def _stored(self, subject: str, body: str, headers: dict[str, str]) -> None:
        answer = orjson.loads((await self._broker.request(subject, body.encode(), timeout=10, headers=headers)).data)
        assert "error" not in answer, f"{subject}: {answer}"


@asynccontextmanager
async def connected(service: Service) -> AsyncIterator[Nats]:
    broker = await nats.connect(service.broker_url)
    try:
        yield broker
    finally:
        await broker.close()


@versions
async def test_the_messages_of_an_older_worker_over_the_broker_take_its_run_to_the_same_end(
    version: str, service: Service
) -> None:
    kept = recording(version, "broker")
    async with AsyncClient(service.url) as api, connected(service) as broker:
        run_id = await started(api, kept)
        worker = OlderWorker(broker, run_id)
        for sent in kept.messages:
            await worker.go_on(sent)
        assert len([sent for sent in kept.messages if sent.kind == "ack"]) == worker.tasks >= len(STEPS)
        shown = await ended(api, service.url, run_id)
    assert [] == differences(kept.ended, orjson.loads(of_run(orjson.dumps(shown).decode(), run_id)))


@versions
def test_a_recording_has_everything_that_a_worker_does(version: str) -> None:
    bridge, broker = recording(version, "bridge"), recording(version, "broker")
    entries = [
        entry["action"]
        for exchange in bridge.exchanges
        for entry in ((exchange.body or {}).get("resolve") or [exchange.body or {}])
        if "action" in entry
    ]
    assert {"complete", "fail", "continue", "pause", "checkpoint", "log", "stream", "progress"} == set(entries)
    types = {orjson.loads(sent.body)["type"] for sent in broker.messages if sent.subject.startswith("history.")}
    events = {"step.started", "step.completed", "step.failed", "step.continue", "step.paused", "signal.received"}
    assert events == types
    assert set(STEPS) == bridge.ended["steps"].keys() == broker.ended["steps"].keys()


def test_every_released_version_has_recordings_and_so_has_this_one() -> None:
    assert {*released((ROOT / "CHANGELOG.md").read_text()), current()} <= set(VERSIONS)
    for version in VERSIONS:
        assert {*RECORDED, SEAL} == {path.name for path in (FOLDER / version).iterdir()}


@versions
def test_nobody_has_changed_a_recording(version: str, tmp_path: Path) -> None:
    folder = FOLDER / version
    kept = (folder / SEAL).read_text().strip()
    assert kept == seal(folder)
    for name in RECORDED:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert kept == seal(tmp_path)
    (tmp_path / "broker.json").write_bytes((folder / "broker.json").read_bytes().replace(b"older", b"newer", 1))
    assert kept != seal(tmp_path)
