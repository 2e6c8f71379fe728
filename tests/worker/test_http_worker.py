"""The worker of http steps as a worker: its tasks over both transports, many at a time, and its reserved type."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, HttpTaskSettings, Settings
from penstock.engine.definition.http_requests import TASK
from penstock.engine.errors import Invalid
from penstock.engine.run.events import StepFailed
from penstock.worker import Worker
from penstock.worker.http_tasks.worker import HttpTaskWorker
from tests.support.frontends import FrontEnd, front_ends
from tests.support.web_server import Asked, answer, web_server
from tests.worker.task_queue import answer as answered
from tests.worker.task_queue import dispatch, output_of

TOKEN = "http-worker"
NewHttpWorker = Callable[..., HttpTaskWorker]


@pytest.fixture(scope="module")
def end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, TOKEN) as (started,):
        yield started


@pytest.fixture(params=["nats", "bridge"])
def new_http_worker(
    request: pytest.FixtureRequest, store: Store, broker_settings: BrokerSettings, end: FrontEnd
) -> NewHttpWorker:
    def make(**own: Any) -> HttpTaskWorker:
        settings = Settings(
            broker=broker_settings,
            http=HttpSettings(bridge_token=TOKEN),
            http_tasks=HttpTaskSettings(**{"allow": ("127.0.0.1",), **own}),
        )
        return HttpTaskWorker(settings, transport=request.param, url=end.url, grace_s=0.2)

    return make


async def test_a_task_becomes_a_request_and_its_answer_the_output(store: Store, new_http_worker: NewHttpWorker) -> None:
    made = answer(201, b'{"id": 7}', content_type="application/json")
    async with web_server(lambda _: made) as server, new_http_worker().running():
        run_id = await dispatch(store, TASK, {"url": server.url("/a"), "method": "POST", "body": {"n": 1}})
        output = output_of(await answered(store, run_id))

    assert (201, {"id": 7}) == (output["status"], output["body"])
    assert server.asked[0].headers["idempotency-key"] == f"{run_id}.s"


@pytest.mark.parametrize(
    ("status", "failure_type", "retry_after_ms"),
    [(404, "non_retriable", 0), (500, "retriable", 0), (429, "retry_after", 3000)],
)
async def test_a_failure_says_whether_and_when_to_come_again(
    store: Store,
    new_http_worker: NewHttpWorker,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    failure_type: str,
    retry_after_ms: int,
) -> None:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "geheim")
    more = {"retry_after": "3"} if status == 429 else {}
    headers = {"Authorization": [{"secret": "KEY"}]}
    with capture_logs() as logs:
        said = answer(status, b"you are geheim", **more)
        async with web_server(lambda _: said) as server, new_http_worker().running():
            run_id = await dispatch(store, TASK, {"url": server.url(), "headers": headers})
            event = await answered(store, run_id)

    assert isinstance(event, StepFailed)
    failed = event.payload
    assert (failure_type, retry_after_ms, "") == (failed.failure_type, failed.retry_after_ms, failed.traceback)
    assert f"GET {server.url()} answered {status}" in failed.error
    assert failed.error.endswith(": you are ***")
    assert "geheim" not in str(logs)
    assert ["task_failed"] == [line["event"] for line in logs if line["log_level"] == "warning"]


async def test_many_requests_wait_at_one_time_and_no_more_than_there_are_slots(
    store: Store, new_http_worker: NewHttpWorker
) -> None:
    """The last answer lets the others go: one after the other they would never end."""
    waiting: set[str] = set()
    everybody = asyncio.Event()

    async def count(asked: Asked) -> bytes:
        waiting.add(asked.target)
        if len(waiting) == 20:
            everybody.set()
        await everybody.wait()
        return answer()

    async with web_server(count) as server, new_http_worker(slots=20).running():
        runs = [await dispatch(store, TASK, {"url": server.url(f"/{n}")}) for n in range(20)]
        events = await asyncio.gather(*(answered(store, run_id) for run_id in runs))

    assert [200] * 20 == [output_of(event)["status"] for event in events]


async def test_requests_under_way_are_given_back_when_it_stops(store: Store, new_http_worker: NewHttpWorker) -> None:
    async with web_server(lambda _: None) as server:
        async with new_http_worker().running():
            run_id = await dispatch(store, TASK, {"url": server.url("/slow")})
            await server.was_asked()
        server.script = lambda _: answer()
        async with new_http_worker().running():
            output = output_of(await answered(store, run_id))

    assert output["status"] == 200
    assert [f"{run_id}.s"] * 2 == [asked.headers["idempotency-key"] for asked in server.asked]


async def test_the_reserved_type_is_for_it_alone(broker_settings: BrokerSettings) -> None:
    worker = Worker(broker_url=broker_settings.url)
    for name in (TASK, "penstock.other"):
        with pytest.raises(Invalid, match=f'task type "{name}" is reserved: task types that begin with penstock'):
            worker.task(name)(lambda: None)
    worker.task("penstock")(lambda: None)
    worker.task("penstocks.http")(lambda: None)


async def test_it_is_seen_as_what_it_is(store: Store, new_http_worker: NewHttpWorker) -> None:
    worker = new_http_worker(slots=7)
    async with worker.running():
        entry = await store.workers.get(worker.worker_id)
        assert entry is not None
        for part in (b'"penstock.http"', b'"builtin":"http"', b'"max_tasks":7'):
            assert part in entry.value
