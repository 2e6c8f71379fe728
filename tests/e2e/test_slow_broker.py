"""Front end, engine and worker behind a line to the broker that is slow, or dead for a while."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import decode, event_type
from penstock.engine.run.state import RunStatus
from penstock.http.app import create_app
from tests.support.conductor import Conductor
from tests.support.line import Line, line
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, register

ANSWER_S_MAX = 20.0  # far more than the deadlines of the service
STEPS = 2


class Far(NamedTuple):
    """`store` is on the broker's side of the line, everything of the service on the other."""

    wire: Line
    store: Store
    http: ASGIConductor

    async def start(self, key: str) -> Result:
        async with asyncio.timeout(ANSWER_S_MAX):
            body = {"workflow": "far", "input": key}
            return await self.http.simulate_post("/runs", json=body, headers={"Idempotency-Key": key})


@pytest.fixture
def broker(tmp_path: Path) -> AsyncIterator[OwnBroker]:
    with own_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def far(broker: OwnBroker) -> AsyncIterator[Far]:
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(open_store(broker.settings, "near"))
        await provision(near.broker, broker.settings)
        await register(near, chain("far", STEPS))
        wire = await stack.enter_async_context(line(broker.settings.port))
        settings = msgspec.structs.replace(broker.settings, url=wire.url)
        engine = asyncio.create_task(live_on(settings))
        stack.callback(engine.cancel)
        workers = await stack.enter_async_context(open_store(settings, "worker"))
        await stack.enter_async_context(echo(workers, "far.echo"))
        http = await stack.enter_async_context(Conductor(create_app(Settings(broker=settings))))
        yield Far(wire, near, http)
        wire.latency_s = 0.0


async def live_on(settings: BrokerSettings) -> NoReturn:
    """As the process of a shard does: when it has lost its lease, it begins anew."""
    while True:
        with suppress(Unavailable):
            async with (
                open_store(settings, "shard", ANSWER_S_MAX) as store,
                open_shard(store, new_member("shard")) as shard,
            ):
                await shard.lease.over.wait()


async def all_done_once(far: Far, run_ids: list[str]) -> None:
    """Each of these runs was started once and has completed with what it was given; no step was ordered twice.

    An event whose acknowledgement was held up for longer than the broker looks for repeats may be in the log again: it
    changes nothing.
    """
    for run_id in run_ids:
        run = await ended(far.store, run_id, 60)
        assert run.status is RunStatus.COMPLETED
        assert {step.attempts for step in run.steps.values()} == {1}
        assert {bytes(step.output) for step in run.steps.values() if step.output} == {bytes(run.input)}
        events = Counter(event_type(decode(one.data)) for one in await far.store.history.read(run_id))
        assert (events["workflow.started"], events["step.failed"]) == (1, 0)


async def test_two_hundred_milliseconds_to_the_broker_only_make_it_slow(far: Far) -> None:
    far.wire.latency_s = 0.1
    answers = await asyncio.gather(*(far.start(f"slow-{number}") for number in range(50)))
    assert {answer.status_code for answer in answers} == {201}
    run_ids = [answer.json["run_id"] for answer in answers]
    await all_done_once(far, run_ids)
    assert "completed" == (await far.http.simulate_get(f"/runs/{run_ids[0]}")).json["status"]


async def test_a_line_that_is_dead_for_seconds_loses_nothing_that_was_acknowledged(far: Far) -> None:
    before = await asyncio.gather(*(far.start(f"before-{number}") for number in range(50)))
    far.wire.cut()
    looks = far.http.simulate_get(f"/runs/{before[0].json['run_id']}")
    *during, looked = await asyncio.gather(*(far.start(f"during-{number}") for number in range(20)), looks)
    far.wire.mend()
    assert {answer.status_code for answer in before} == {201}
    assert {answer.status_code for answer in (*during, looked)} == {503}
    assert all("broker" in answer.text for answer in during)
    run_ids = [answer.json["run_id"] for answer in before]
    run_ids += [await started_in_the_end(far, f"during-{number}") for number in range(20)]
    assert len(set(run_ids)) == 70
    await all_done_once(far, run_ids)


async def started_in_the_end(far: Far, key: str) -> str:
    """As a client does that was told to come again."""

    async def started() -> Result | None:
        answer = await far.start(key)
        return None if answer.status_code == 503 else answer

    answer = await until(started)
    assert answer is not None
    assert answer.status_code == 201
    run_id: str = answer.json["run_id"]
    return run_id
