"""A worker of the bridge that is full sends its answers together with its next poll."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.store import Store
from penstock.broker.worker_protocol.bridge_messages import Exchanged, ExchangeTasks
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import NotFound, Unavailable
from penstock.worker import Worker
from penstock.worker.transports.bridge_client import BridgeClient
from tests.support.frontends import FrontEnd, front_ends
from tests.support.waiting import until_true
from tests.worker.task_queue import acknowledged, answer, dispatch, output_of

TOKEN = "exchanging"
TASKS = 6
Refuse = Callable[[BridgeClient, ExchangeTasks], Awaitable[Exchanged]]


@pytest.fixture(scope="module")
def end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, TOKEN) as (started,):
        yield started


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests of all workers, by their path without ids."""
    counts, ask = Counter[str](), BridgeClient._ask

    async def counting(client: BridgeClient, method: str, path: str, *args: Any, **more: Any) -> Any:
        counts[path.rpartition("/")[2]] += 1
        return await ask(client, method, path, *args, **more)

    monkeypatch.setattr(BridgeClient, "_ask", counting)
    return counts


def doubling(end: FrontEnd, task: str, max_tasks: int) -> Worker:
    worker = Worker(transport="bridge", url=end.url, bridge_token=TOKEN, max_tasks=max_tasks, grace_s=1)

    @worker.task(task)
    async def double(value: int) -> int:
        return 2 * value

    return worker


async def doubled(store: Store, worker: Worker, task: str) -> None:
    run_ids = [await dispatch(store, task, number) for number in range(TASKS)]
    async with worker.running():
        assert [2 * number for number in range(TASKS)] == [output_of(await answer(store, run_id)) for run_id in run_ids]
        await acknowledged(store, task)


async def test_full_worker_needs_one_request_a_task(
    store: Store, end: FrontEnd, task: str, asked: Counter[str]
) -> None:
    await doubled(store, doubling(end, task, 1), task)
    assert TASKS == asked["exchange"]
    assert 0 == asked["resolve"]


async def test_worker_with_room_answers_at_once(store: Store, end: FrontEnd, task: str, asked: Counter[str]) -> None:
    await doubled(store, doubling(end, task, 100), task)
    assert (TASKS, 0) == (asked["resolve"], asked["exchange"])


async def test_service_without_exchanges_is_answered_as_ever(
    store: Store, end: FrontEnd, task: str, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def older(client: BridgeClient, request: ExchangeTasks) -> Exchanged:
        asked["exchange"] += 1
        raise NotFound("the path does not exist")

    monkeypatch.setattr(BridgeClient, "exchange", older)
    await doubled(store, doubling(end, task, 1), task)
    assert (TASKS, 1) == (asked["resolve"], asked["exchange"])


async def test_answers_of_an_exchange_that_broke_are_given_again(
    store: Store, end: FrontEnd, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that had arrived: the service says that they are late, and the first one counts."""
    exchange = BridgeClient.exchange
    broken: list[ExchangeTasks] = []

    async def breaking(client: BridgeClient, request: ExchangeTasks) -> Exchanged:
        if broken:
            return await exchange(client, request)
        found = await exchange(client, replace(request, poll=replace(request.poll, timeout_ms=0)))
        assert (["ok"], []) == ([one.status for one in found.resolved], found.tasks)
        broken.append(request)
        raise Unavailable("the connection broke")

    monkeypatch.setattr(BridgeClient, "exchange", breaking)
    run_id = await dispatch(store, task, 1)
    async with doubling(end, task, 1).running():
        assert 2 == output_of(await answer(store, run_id))
        await acknowledged(store, task)
        await until_true(lambda: bool(broken))
        again = await dispatch(store, task, 4)
        assert 8 == output_of(await answer(store, again))
    assert 1 == len(broken)
