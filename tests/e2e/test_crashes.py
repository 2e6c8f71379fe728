"""SIGKILL in the middle of a thousand runs: every acknowledged run completes, and nothing of it is done twice in its
state."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from penstock.actors.runs.loading import advance_safely, load, records
from penstock.broker import names
from penstock.broker.names import owner_state
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError
from penstock.engine.run.state import Run, RunStatus, from_snapshot, to_snapshot
from tests.e2e.parts import all_ended, in_the_middle
from tests.support.service import Service
from tests.support.waiting import until_true
from tests.support.world import chain

pytestmark = pytest.mark.timeout(180)

RUNS = 1000
WORKFLOW = "crash"
TASK = "crash.echo"
PATIENCE_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, shards=2) as running:
        with running.client() as client:
            client.register(orjson.dumps(chain(WORKFLOW)))
        yield running


@pytest.fixture
async def store(service: Service) -> AsyncIterator[Store]:
    """A connection of the test's own, and a task consumer that gives a dead worker's tasks to others after 2 s instead
    of 30."""
    async with open_store(BrokerSettings(url=service.broker_url), "test") as opened:
        consumer = names.task_consumer(TASK)
        config = {
            "name": consumer,
            "durable_name": consumer,
            "ack_policy": "explicit",
            "ack_wait": 2 * 10**9,
            "max_ack_pending": -1,
            "filter_subject": names.task_filter(TASK),
        }
        await opened.broker.api(
            f"CONSUMER.CREATE.{names.TASKS}.{consumer}", {"stream_name": names.TASKS, "config": config}
        )
        yield opened


@contextmanager
def worker(service: Service) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "tests.support.echo_worker", TASK], env=service.environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def assert_whole(store: Store, run_ids: Sequence[str]) -> None:
    """Every run completed, each step in its first attempt, and each snapshot is the fold of the run's whole log."""
    runs = await all_ended(store, run_ids)
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert {step.attempts for run in runs for step in run.steps.values()} == {1}
    for run in runs:
        folded = await folded_from_the_start(store, run)
        assert to_snapshot(await final_snapshot(store, run.run_id)) == to_snapshot(folded)


async def folded_from_the_start(store: Store, run: Run) -> Run:
    workflow = await store.definitions.load(run.workflow_id, run.digest)
    folded: Run | None = None
    for record in records(await store.history.read(run.run_id)):
        folded, _ = advance_safely(workflow, folded, record)
    assert folded is not None
    return folded


async def final_snapshot(store: Store, run_id: str) -> Run:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            last = await store.history.last(run_id)
            if last is not None and owner_state(last.headers) is not None:
                carried = (await load(store, run_id)).run
                assert carried is not None
                return carried
            entry = await store.runs.get(run_id)
            if entry is not None and (run := from_snapshot(entry.value)).ended:
                return run
            await asyncio.sleep(0.05)


def bulk(service: Service, count: int = RUNS) -> list[str]:
    with service.client() as client:
        return list(client.bulk(WORKFLOW, [b"%d" % n for n in range(count)]).run_ids)


@pytest.mark.parametrize("name", ["shard-0", "services"])
async def test_killed_engine_process_is_replaced_and_every_run_completes(
    service: Service, store: Store, name: str
) -> None:
    with worker(service):
        run_ids = bulk(service)
        await in_the_middle(store, run_ids)
        former = service.kill(name)
        await assert_whole(store, run_ids)
        assert await asyncio.to_thread(service.await_restart, name, former) != former


async def test_killed_broker_is_replaced_and_every_run_completes(service: Service, store: Store) -> None:
    with worker(service):
        run_ids = bulk(service)
        await in_the_middle(store, run_ids)
        former = service.kill("broker")
        await asyncio.to_thread(service.await_restart, "broker", former)
        await assert_whole(store, run_ids)


async def test_killed_worker_loses_no_task(service: Service, store: Store) -> None:
    with worker(service) as first:
        run_ids = bulk(service)
        await in_the_middle(store, run_ids)
        first.send_signal(signal.SIGKILL)
        first.wait()
        with worker(service):
            await assert_whole(store, run_ids)


@pytest.mark.parametrize("whole", [False, True], ids=["one worker of it", "all of it"])
async def test_killed_front_end_loses_no_run_that_it_answered_for(service: Service, store: Store, whole: bool) -> None:
    acknowledged: list[str] = []

    def start_some() -> None:
        with service.client() as client:
            for n in range(RUNS // 4):
                try:
                    acknowledged.append(client.start(WORKFLOW, b"%d" % n).run_id)
                except PenstockError:
                    continue  # not acknowledged: it may have been started or not

    with worker(service):
        starting = [asyncio.create_task(asyncio.to_thread(start_some)) for _ in range(4)]
        await until_true(lambda: len(acknowledged) >= RUNS // 4)
        if whole:
            service.kill("http")
        else:
            os.kill(service.http_worker_pids()[0], signal.SIGKILL)
        await asyncio.gather(*starting)
        assert len(acknowledged) >= RUNS // 4
        await assert_whole(store, acknowledged)
    await asyncio.to_thread(service.await_ready)


async def test_everything_killed_at_once_goes_on_after_the_next_start(service: Service, store: Store) -> None:
    with worker(service):
        run_ids = bulk(service)
        await in_the_middle(store, run_ids)
        service.kill_all()
        service.start()
        await assert_whole(store, run_ids)
