"""`penstock serve` as a leaf of a hub: it works on its own, subjects flow both ways, and trouble with a link is told
aloud."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from penstock.broker import names
from penstock.broker.embedded.leaf import NOT_YET, UNSEEN
from penstock.broker.nats.connection import connect
from penstock.broker.store import open_store
from penstock.config.settings import BrokerSettings
from tests.support.server import Server, server
from tests.support.service import PENSTOCK, Service, free_port
from tests.support.waiting import until, until_true
from tests.support.world import chain

pytestmark = pytest.mark.timeout(90)

PASSWORD = "hunter2hunter2"
MISTAKE = "wr0ngwr0ngwr0ng"
PASSING = (NOT_YET, UNSEEN, "the broker's monitoring is not up")


@contextmanager
def hub(directory: Path, password: str, name: str = "hub") -> Iterator[tuple[Server, int]]:
    """A hub for one leaf, and the port where it comes in."""
    port = free_port()
    with server(directory, block(port, password), name) as one:
        yield one, port


def block(port: int, password: str) -> str:
    users = f'[{{ user: "leaf", password: "{password}" }}]'
    return f'leafnodes {{ listen: "127.0.0.1:{port}", authorization {{ users: {users} }} }}'


def remote(port: int, password: str) -> str:
    return f"nats-leaf://leaf:{password}@127.0.0.1:{port}"


async def health(service: Service, connected: bool) -> dict[str, Any]:
    """What /health says once the links are all up, or each that is not has a reason."""

    async def find() -> dict[str, Any]:
        answer = await asyncio.to_thread(httpx2.get, f"{service.url}/health")
        body: dict[str, Any] = answer.json()
        assert (200, "healthy") == (answer.status_code, body["status"])
        told = all(link["connected"] or link["problem"] not in PASSING for link in body["leaf"]["links"])
        return body if told and body["leaf"]["connected"] is connected else {}

    return await until(find)


def told(service: Service, event: str) -> list[dict[str, object]]:
    return [line for line in service.log_lines() if line.get("event") == event]


async def test_a_leaf_runs_its_own_workflows_and_exchanges_messages_with_its_hub(tmp_path: Path) -> None:
    with hub(tmp_path, PASSWORD) as (one, port):
        await until_true(lambda: one.listens)
        environ = {"SERVICE_LEAF_REMOTES": remote(port, PASSWORD)}
        with Service(tmp_path / "leaf", environ, shards=1, http_workers=1) as service:
            assert [{"address": f"nats-leaf://***@127.0.0.1:{port}", "connected": True}] == (
                await health(service, True)
            )["leaf"]["links"]
            assert told(service, "leaf_link_up")
            await asyncio.to_thread(runs_locally, service)
            await hears_the_hub(service, one)
            await is_heard_at_the_hub(service, one)


def runs_locally(service: Service) -> None:
    worker = subprocess.Popen([sys.executable, "-m", "tests.support.echo_worker", "leaf.echo"], env=service.environ)
    try:
        with service.client() as client:
            client.register(orjson.dumps(chain("leaf")))
            run_id = client.start("leaf", b'{"n":1}').run_id
            assert "workflow.completed" == [event.type for event in client.follow(run_id)][-1]
    finally:
        worker.kill()
        worker.wait()


async def hears_the_hub(service: Service, one: Server) -> None:
    """An event that is published at the hub is kept in the leaf's own stream."""
    async with (
        open_store(BrokerSettings(url=service.broker_url), "leaf") as leaf,
        connect(BrokerSettings(url=one.url), "hub") as far,
    ):

        async def arrived() -> bytes | None:
            await far.publish("event.orders", b'{"from":"hub"}')
            stored = await leaf.reader.one(names.EVENTS, "event.orders")
            return stored.data if stored else None

        assert b'{"from":"hub"}' == await until(arrived)
        assert "leaf" == (await leaf.broker.api("INFO"))["domain"]


async def is_heard_at_the_hub(service: Service, one: Server) -> None:
    """Who listens at the hub hears of the leaf's runs, as they happen; and reaches its streams by its domain."""
    heard: list[str] = []

    async def hear(msg: Any) -> None:
        heard.append(msg.subject)

    async with connect(BrokerSettings(url=one.url), "hub") as far:
        await far.subscribe("watch.*", hear)
        await far.flush()
        with service.client() as client:
            subjects: set[str] = set()

            async def one_was_heard() -> bool:
                subjects.add(names.watch_subject((await asyncio.to_thread(client.start, "leaf", b"null")).run_id))
                return not subjects.isdisjoint(heard)

            await until(one_was_heard)
        info = orjson.loads((await far.request(f"$JS.leaf.API.STREAM.INFO.{names.HISTORY}")).data)
    assert names.HISTORY == info["config"]["name"]


async def test_refused_and_unreachable_hubs_show_and_so_does_their_recovery(tmp_path: Path) -> None:
    with hub(tmp_path, PASSWORD) as (one, port), hub(tmp_path, PASSWORD, "other") as (other, other_port):
        await until_true(lambda: one.listens and other.listens)
        other.kill()
        environ = {"SERVICE_LEAF_REMOTES": f"{remote(port, MISTAKE)},{remote(other_port, PASSWORD)}"}
        with Service(tmp_path / "leaf", environ, shards=1, http_workers=1) as service:
            refused, away = (await health(service, False))["leaf"]["links"]
            assert (False, "Authorization Violation") == (refused["connected"], refused["problem"])
            assert "connection refused" in away["problem"]
            problems = [line["problem"] for line in told(service, "leaf_link_down")]
            assert "Authorization Violation" in problems
            assert any("connection refused" in str(problem) for problem in problems)
            assert_silent_about_passwords(service)
            one.kill()
            one.configure(block(port, MISTAKE))
            one.start()
            other.start()
            await health(service, True)
            assert 2 == len(told(service, "leaf_link_up"))


def assert_silent_about_passwords(service: Service) -> None:
    """Neither logs nor answers nor arguments hold one; the file that must is for its owner only."""
    data = service.directory / "data"
    texts = {
        "log": service.log.read_text(),
        "broker's log": (data / "broker.log").read_text(),
        "links": (data / "leaf.json").read_text(),
    }
    texts["/health"] = httpx2.get(f"{service.url}/health").text
    remotes = f"{remote(1, PASSWORD)},{remote(2, MISTAKE)}"
    shown = subprocess.run(
        [PENSTOCK, "config"],
        env={**service.environ, "SERVICE_LEAF_REMOTES": remotes},
        capture_output=True,
        text=True,
        check=True,
    )
    texts["config"] = shown.stdout
    for name, pid in {**service.pids(), "serve": service.pid}.items():
        texts[f"arguments of {name}"] = Path(f"/proc/{pid}/cmdline").read_text()
    assert [] == [name for name, text in texts.items() if PASSWORD in text or MISTAKE in text]
    assert 0o600 == (data / "broker.conf").stat().st_mode & 0o777
