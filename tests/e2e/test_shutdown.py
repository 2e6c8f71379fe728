"""SIGTERM: no new work, everyone answered, everything gone, and nothing to repair at the next start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx2
import orjson
import pytest

from penstock.actors.runs.loading import Owner, load
from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.names import owner_state
from penstock.broker.store import Store, open_store
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import from_snapshot
from tests.e2e.conftest import StartService
from tests.e2e.parts import all_completed
from tests.http.bridge import TOKEN, client
from tests.support.service import Service, free_port
from tests.support.waiting import until, until_true
from tests.support.world import chain

pytestmark = pytest.mark.timeout(180)

CLIENTS = 8
LOADED = 300  # runs that have been started when the service is told to stop
ENDLESS = b'{"name":"endless","steps":[{"id":"a","task":"nobody.does.it"}]}'


async def told(service: Service, *events: str) -> None:
    """Return once the service has logged these."""
    await until_true(lambda: set(events) <= {str(line["event"]) for line in service.log_lines()})


def forced(service: Service) -> list[str]:
    """What had to be ended by force."""
    lines = [str(line["event"]) for line in service.log_lines()]
    return [line for line in lines if line in ("process_killed", "process_died") or line.startswith("Forcing close")]


async def test_everyone_who_waits_is_answered_with_what_there_is(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1, bridge_token=TOKEN)
    with service.client() as api:
        api.register(ENDLESS)
        run_id = api.start("endless", b"null").run_id
    worker = {"worker_id": "w", "task_types": ["nothing"]}
    poll = {"task_types": ["nothing"], "max_tasks": 1, "timeout_ms": 60_000}
    async with client(service.url) as http:
        waiting = {
            "run": http.get(f"/runs/{run_id}", params={"wait_ms": 60_000}),
            "events": http.get(f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"}),
            "poll": http.post("/v1/tasks/poll", json=poll),
            "signal": http.get(f"/v1/runs/{run_id}/signals/never", params={"timeout_ms": 60_000}),
            "worker": http.post("/v1/workers/connect", json=worker),
        }
        asked = [asyncio.ensure_future(request) for request in waiting.values()]
        await until(lambda: are_waiting(http))
        assert 0 == await asyncio.to_thread(service.stop)
        answers = dict(zip(waiting, await asyncio.gather(*asked), strict=True))  # a cut one would raise
    statuses = {name: answer.status_code for name, answer in answers.items()}
    assert {"run": 200, "events": 200, "poll": 200, "signal": 204, "worker": 200} == statuses
    assert "running" == answers["run"].json()["status"]
    assert "event: workflow.started" in answers["events"].text
    assert [] == answers["poll"].json()
    assert [] == forced(service)


async def are_waiting(http: httpx2.AsyncClient) -> bool:
    """Whether the poll waits and the worker is there: they were sent last."""
    page = (await http.get("/metrics")).text
    registered = (await http.get("/workers")).json()
    return any(
        line.startswith("penstock_bridge_pollers{") and line.endswith(" 1.0") for line in page.splitlines()
    ) and bool(registered)


async def test_a_request_under_way_is_answered_and_connections_without_one_are_closed(
    start_service: StartService,
) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as api:
        api.register(ENDLESS)
    unused, (slow, half), (used, other) = [await asyncio.open_connection(*service.http_address) for _ in range(3)]
    body = b'{"workflow":"endless"}'
    half.write(b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:9]))
    await half.drain()
    other.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")  # answered after the head of that one was taken
    assert b"200" in await used.readline()
    stopping = asyncio.ensure_future(asyncio.to_thread(service.stop))
    await used.read()  # to its end
    assert b"" == await unused[0].read()
    half.write(body[9:])
    answer = await slow.read()
    assert answer.startswith(b"HTTP/1.1 201")
    assert 0 == await stopping
    assert [] == forced(service)
    for writer in (unused[1], half, other):
        writer.close()
    async with only_its_broker(service) as store:
        assert (await load(store, orjson.loads(answer.partition(b"\r\n\r\n")[2])["run_id"])).run is not None


async def test_signals_that_come_again_while_it_stops_change_nothing(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    pid, stopping = service.pid, asyncio.ensure_future(asyncio.to_thread(service.stop))
    while not stopping.done():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        await asyncio.sleep(0.01)
    assert 0 == await stopping
    assert [] == forced(service)


async def test_a_start_that_is_broken_off_ends_in_order_and_the_next_one_works(tmp_path: Path) -> None:
    service = Service(tmp_path, shards=1, http_workers=1)
    for moment in ("", "broker_ready", "process_started", "shard_ready"):
        service.launch()
        try:
            await (told(service, moment) if moment else until(lambda: listens(service)))
        finally:
            assert 0 == await asyncio.to_thread(service.stop)
        assert "process_killed" not in forced(service)
    with service:
        assert "process_died" not in forced(service)


async def listens(service: Service) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(service.broker_url.rpartition(":")[2]))
    except OSError:
        return False
    writer.close()
    return True


class Load:
    """Clients that start runs until nobody answers any more. Owned by a test."""

    def __init__(self, service: Service, workflow: str) -> None:
        self._service, self._workflow = service, workflow
        self.run_ids: list[str] = []
        self.outcomes: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._start_runs())

    async def _start_runs(self) -> None:
        async with client(self._service.url, None) as http:
            outcome = ""
            while outcome != "refused":
                outcome = await self._start(http)
                self.outcomes[outcome] += 1

    async def _start(self, http: httpx2.AsyncClient) -> str:
        try:
            answer = await http.post(
                "/runs", json={"workflow": self._workflow}, headers={"Idempotency-Key": uuid4().hex}
            )
        except httpx2.ConnectError:
            return "refused"
        except httpx2.TimeoutException:
            return "silence"
        except httpx2.TransportError:
            return "cut"
        if answer.status_code == 201:
            self.run_ids.append(answer.json()["run_id"])
        return str(answer.status_code)


async def test_a_stop_under_load_leaves_nothing_to_repair(start_service: StartService) -> None:
    service = start_service(shards=2, http_workers=2)
    with service.client() as api:
        api.register(orjson.dumps({**chain("load", 3, timeout="1h"), "timeout": "2h"}))
    clients = Load(service, "load")
    with echo_worker(service, "load.echo"):
        loading = asyncio.ensure_future(clients.run())
        await until_true(lambda: len(clients.run_ids) > LOADED)
        assert 0 == await asyncio.to_thread(service.stop)
        await loading
        assert [] == forced(service)
        assert {"201", "refused"} <= set(clients.outcomes) <= {"201", "503", "cut", "refused"}
        async with only_its_broker(service) as store:
            handled = await nothing_comes_again(store)
            await snapshots_have_all_of_it(store, clients.run_ids, handled)
        service.start()
        async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
            await all_completed(store, clients.run_ids)  # each step with one attempt
    assert not {"event_dead_lettered", "run_index_rebuilt", "snapshot_unreadable"} & {
        str(line["event"]) for line in service.log_lines()
    }


async def test_a_timer_that_was_set_just_before_a_stop_is_the_brokers_then(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as api:
        api.register(orjson.dumps({**orjson.loads(ENDLESS), "timeout": "1h"}))
        run_id = api.start("endless", b"null").run_id
    assert 0 == await asyncio.to_thread(service.stop)
    async with only_its_broker(service) as store:
        assert await store.reader.one(names.HISTORY, names.schedule_subject(run_id, "workflow"))
        handled = await nothing_comes_again(store)
        await snapshots_have_all_of_it(store, [run_id], handled)


@contextmanager
def echo_worker(service: Service, task: str) -> Iterator[None]:
    with (service.directory / "worker.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.support.echo_worker", task]
        worker = subprocess.Popen(command, env=service.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(30)


@asynccontextmanager
async def only_its_broker(service: Service) -> AsyncIterator[Store]:
    """What the service has stored, with nothing running that could change it."""
    settings = BrokerSettings(port=free_port(), data_dir=str(service.directory / "data"))
    log = service.directory / "data" / "broker.log"
    before = log.stat().st_size
    broker = EmbeddedBroker(settings)
    broker.start()
    try:
        complaints = [line for line in log.read_bytes()[before:].splitlines() if b"[WRN]" in line or b"[ERR]" in line]
        assert [] == complaints
        async with open_store(BrokerSettings(url=broker.url), "test") as store:
            yield store
    finally:
        broker.stop()


async def nothing_comes_again(store: Store) -> dict[int, int]:
    """For each partition, the last sequence of the log that counts as handled: a new owner gets what comes after it.
    The consumer by which the former one got its events has gone with the broker's memory."""
    view = await store.owners.read()
    assert {} == view.members
    assert {""} == {claimed.claim.owner for claimed in view.claims.values()}
    handled = {}
    for number in range(PARTITIONS):
        claim = view.claims[number].claim
        assert await store.consumers.progress(claim.consumer) is None
        handled[number] = claim.start - 1
    assert max(handled.values()) > 0
    return handled


async def snapshots_have_all_of_it(store: Store, run_ids: list[str], handled: dict[int, int]) -> None:
    """Nothing that a shard was given is missing in a snapshot, where there is one, nor is to be done by the next."""
    entries = await store.runs.get_many(run_ids)
    for run_id in run_ids:
        last = await store.history.last(run_id)
        if last is not None and owner_state(last.headers) is not None:
            continue  # its end carries all before
        until = handled[names.partition(run_id)]
        if run_id in entries:
            covered = from_snapshot(entries[run_id].value).seq
            assert [] == [one.seq for one in await store.history.read(run_id, covered) if one.seq <= until]
        elif last is not None and last.seq <= until:
            assert () == (await load(store, run_id, owner=Owner(until + 1, lambda *_: None))).due
