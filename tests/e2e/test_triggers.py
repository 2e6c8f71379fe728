"""All four kinds of triggers in the whole service, while its processes are killed: every occurrence gives one completed
run."""

from __future__ import annotations

import asyncio
import hmac
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
import orjson
import pytest

from penstock.actors.runs.loading import load_many
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import WorkflowStarted, decode
from penstock.engine.run.state import RunStatus
from tests.support.service import Service
from tests.support.trigger_events import publish, started
from tests.support.waiting import until
from tests.support.world import chain

pytestmark = pytest.mark.timeout(180)

SECRET = "it is a secret"
KINDS = ("webhook", "event", "subject", "cron")
EACH = 60
PATIENCE_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """With a worker, and one trigger of each kind made by the command line."""
    with Service(tmp_path, shards=1, http_workers=1, webhook_secret=SECRET) as running:
        with running.client() as client:
            for kind in KINDS:
                client.register(orjson.dumps(chain(kind, 1)))
        for options in (
            ("webhook", "--webhook"),
            ("event", "--event", "event.order.*", "--filter-field", "kind", "--filter-value", "new"),
            ("subject", "--subject", "order.>"),
            ("cron", "--cron", "* * * * * *", "--timezone", "Australia/Lord_Howe"),
        ):
            made = running.penstock("trigger", "create", *options)
            assert (0, "") == (made.returncode, made.stderr)
        tasks = [f"{kind}.echo" for kind in KINDS]
        worker = subprocess.Popen([sys.executable, "-m", "tests.support.echo_worker", *tasks], env=running.environ)
        try:
            yield running
        finally:
            worker.kill()
            worker.wait()


@pytest.fixture
async def store(service: Service) -> AsyncIterator[Store]:
    async with open_store(BrokerSettings(url=service.broker_url), "test") as opened:
        yield opened


async def occur(service: Service, store: Store, numbers: range) -> None:
    """Each number once to every kind but cron, as users do: a webhook that was not answered is sent again."""
    async with httpx2.AsyncClient(trust_env=False, timeout=5) as client:
        for number in numbers:
            body = orjson.dumps({"kind": "new", "number": number})
            await until(lambda: _sent(client, service, body, number))  # noqa: B023 - awaited in this round
            await store.events.publish("event.order.a", body)
            await publish(store, "order.a", body)
            await publish(store, "event.order.a", b'{"kind": "old"}')


async def _answers(store: Store) -> bool:
    """Whether the test's own connection is there again."""
    try:
        return await store.history.now() > 0
    except Unavailable:
        return False


async def _sent(client: httpx2.AsyncClient, service: Service, body: bytes, number: int) -> bool:
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": f"delivery {number}"}
    try:
        return (
            await client.post(f"{service.url}/v1/webhooks/webhook", content=body, headers=headers)
        ).status_code == 202
    except httpx2.TransportError:
        return False


async def numbers_of(store: Store, workflow: str) -> list[int]:
    return [orjson.loads(bytes(one.input))["number"] for one in await started(store, workflow)]


async def all_came(store: Store, count: int) -> None:
    async def enough() -> bool:
        return all([len(await numbers_of(store, kind)) >= count for kind in KINDS if kind != "cron"])

    await until(enough, PATIENCE_S)


async def instants(store: Store) -> list[datetime]:
    return [datetime.fromisoformat(one.trigger.at) for one in await started(store, "cron") if one.trigger]


async def assert_once_each(store: Store, count: int) -> None:
    for kind in KINDS:
        if kind != "cron":
            assert sorted(await numbers_of(store, kind)) == list(range(count))
    at = await instants(store)
    assert at == [at[0] + timedelta(seconds=n) for n in range(len(at))]


async def assert_completed(store: Store) -> None:
    """Those of cron that have come by now, and all others."""
    stored = await store.reader.subject(names.HISTORY, "history.*.*")
    run_ids = [event.run_id for event in (decode(one.data) for one in stored) if isinstance(event, WorkflowStarted)]

    async def completed() -> bool:
        return {run.status for run in await load_many(store, run_ids)} == {RunStatus.COMPLETED}

    await until(completed, PATIENCE_S)


async def test_killed_processes_lose_no_occurrence_and_double_none(service: Service, store: Store) -> None:
    occurring = asyncio.create_task(occur(service, store, range(EACH)))
    await until(lambda: numbers_of(store, "subject"))
    for name in ("services", "http", "services"):
        former = service.kill(name)
        await asyncio.to_thread(service.await_restart, name, former)
        before = len(await numbers_of(store, "webhook"))

        async def goes_on(before: int = before) -> bool:
            return occurring.done() or len(await numbers_of(store, "webhook")) > before

        await until(goes_on, PATIENCE_S)
    await occurring
    await all_came(store, EACH)
    await assert_once_each(store, EACH)
    await assert_completed(store)


async def test_occurrences_while_everything_is_down_are_caught_up(service: Service, store: Store) -> None:
    await occur(service, store, range(10))
    await all_came(store, 10)
    service.kill_all()
    down = datetime.now().astimezone()

    async def three_seconds_passed() -> bool:
        return datetime.now().astimezone() > down + timedelta(seconds=3)

    await until(three_seconds_passed)
    service.start()
    await until(lambda: _answers(store))
    await occur(service, store, range(10, 20))
    await all_came(store, 20)

    async def beyond() -> bool:
        return max(await instants(store)) > down + timedelta(seconds=4)

    await until(beyond, PATIENCE_S)
    await assert_once_each(store, 20)


async def test_the_command_line_shows_and_changes_triggers(service: Service, store: Store) -> None:
    listed = service.penstock("trigger", "list").stdout.splitlines()
    assert ["cron-cron", "event-event", "subject-subject", "webhook"] == [line.split()[0] for line in listed[1:]]
    assert SECRET not in service.penstock("trigger", "show", "webhook", "--json").stdout
    assert "disabled cron-cron\n" == service.penstock("trigger", "disable", "cron-cron").stdout
    tested = service.penstock("trigger", "test", "event-event", "--input", '{"kind": "old"}')
    assert (1, True) == (tested.returncode, "the filter does not let it through" in tested.stdout)
    fired = service.penstock("trigger", "fire", "event-event", "--input", '{"number": 1}')
    assert [1] == await until(lambda: numbers_of(store, "event"))
    run = service.penstock("run", "status", fired.stdout.strip(), "--wait", "--json")
    assert "completed" == orjson.loads(run.stdout)["status"]
    assert "deleted subject-subject\n" == service.penstock("trigger", "delete", "subject-subject").stdout
    assert 1 == service.penstock("trigger", "show", "subject-subject").returncode
