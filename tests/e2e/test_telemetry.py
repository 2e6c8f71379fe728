"""Telemetry of the whole service: one page of numbers, one stream of reports, warnings and spans, and no secret in any
of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker import names
from penstock.broker.store import open_store
from penstock.config.settings import BrokerSettings
from tests.e2e.conftest import StartService
from tests.support.service import Service
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
RUNS = 60
WORKFLOW = b'{"name":"w","steps":[{"id":"a","task":"t"},{"id":"b","task":"t","depends_on":["a"]}]}'
SECRETS = {"api_token": "api-t0ken-0123", "bridge_token": "bridge-t0ken-0123", "webhook_secret": "webhook-s3cret-0123"}


@contextmanager
def worker(service: Service) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "tests.support.echo_worker", "t"], env=service.environ, cwd=ROOT)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def service(start_service: StartService) -> Service:
    return start_service(shards=2, http_workers=2, telemetry_sample_ratio=1, **SECRETS)


@pytest.fixture
def http(service: Service) -> Iterator[httpx2.Client]:
    """Each request on a connection of its own: so that both front-end processes get some."""
    headers = {"Authorization": f"Bearer {SECRETS['api_token']}", "Connection": "close"}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False, timeout=20) as client:
        yield client


def page(http: httpx2.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = http.get("/metrics")
    assert 200 == answer.status_code
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def total(http: httpx2.Client, name: str, **labels: str) -> float:
    return sum(
        value for (of, having), value in page(http).items() if of == name and labels.items() <= dict(having).items()
    )


async def until_total(http: httpx2.Client, wanted: float, name: str, **labels: str) -> None:
    async def reached() -> bool:
        return total(http, name, **labels) == wanted

    await until(reached)


async def test_totals_over_all_processes_are_exact(service: Service, http: httpx2.Client) -> None:
    assert 201 == http.post("/workflows", content=WORKFLOW).status_code
    with worker(service):
        begun = [http.post("/runs", json={"workflow": "w", "input": number}) for number in range(RUNS)]
        assert {201} == {answer.status_code for answer in begun}
        await until_total(http, RUNS, "penstock_run_events_total", workflow="w", event="completed")
        await until_total(http, RUNS, "penstock_runs", workflow="w", status="completed")
    assert RUNS == total(http, "penstock_run_events_total", workflow="w", event="started")
    for event in ("started", "completed"):
        assert 2 * RUNS == total(http, "penstock_step_events_total", task="t", event=event)
    assert 0 == total(http, "penstock_step_events_total", event="failed")
    assert RUNS == total(http, "penstock_http_requests_total", route="/runs", method="POST", status="201")
    assert RUNS == total(http, "penstock_http_request_seconds_count", route="/runs", method="POST")
    found = page(http)
    processes = {dict(labels)["process"] for name, labels in found if name == "penstock_process_start_time_seconds"}
    assert {"shard-0", "shard-1", "services", "http-0", "http-1"} == processes
    stored = sum(len(http.get(f"/runs/{answer.json()['run_id']}/events").json()) for answer in begun)
    assert 4 * RUNS <= stored  # a step that takes longer has a start of its own
    assert stored == sum(value for (name, _), value in found.items() if name == "penstock_event_handling_seconds_count")
    owners = {
        dict(labels)["partition"]: dict(labels)["process"]
        for name, labels in found
        if name == "penstock_partition_owner"
    }
    assert ({"shard-0", "shard-1"}, 32) == (set(owners.values()), len(owners))
    assert 0 == found["penstock_partitions_unowned", frozenset()]


async def test_restarts_are_counted_and_logged_as_warnings(service: Service, http: httpx2.Client) -> None:
    assert 0 == total(http, "penstock_restarts_total")
    service.await_restart("shard-1", service.kill("shard-1"))
    await until_total(http, 1, "penstock_restarts_total", child="shard-1")
    await until_total(http, 0, "penstock_partitions_unowned")
    # The reporter of the supervisor's numbers may die as any other: nothing is forgotten.
    service.await_restart("services", service.kill("services"))
    await until_total(http, 1, "penstock_restarts_total", child="services")
    assert 2 == total(http, "penstock_restarts_total")
    events = await stored(service, "telemetry.log.supervisor", 2)
    assert [("process_died", "shard-1", -9), ("process_died", "services", -9)] == [
        (event["event"], event["name"], event["code"]) for event in events
    ]


async def test_a_front_end_process_that_is_replaced_goes_on_under_its_name(
    service: Service, http: httpx2.Client
) -> None:
    before = {
        number: total(http, "penstock_process_start_time_seconds", process=f"http-{number}") for number in range(2)
    }
    os.kill(service.http_worker_pids()[0], signal.SIGKILL)

    async def replaced() -> bool:
        now = {
            number: total(http, "penstock_process_start_time_seconds", process=f"http-{number}") for number in range(2)
        }
        return all(now.values()) and sum(now[number] != before[number] for number in range(2)) == 1

    await until(replaced)


async def test_the_stream_holds_reports_warnings_and_spans_and_no_secret(service: Service, http: httpx2.Client) -> None:
    http.post("/workflows", content=WORKFLOW)
    with worker(service):
        run_id = http.post("/runs", json={"workflow": "w", "input": "payl0ad-0123"}).json()["run_id"]
        spans = await stored(service, f"telemetry.span.{run_id}", 3)
    assert ["step a", "step b", "run w"] == [span["name"] for span in spans]
    assert {run_id} == {span["trace_id"] for span in spans}
    for secret in SECRETS.values():
        http.get("/runs", headers={"Authorization": f"Bearer {secret}x"})
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        await store.publisher.send(names.history_subject(run_id), b"no event")
    logged_event = await until(lambda: logged(service, "event_dead_lettered"))
    assert ("error", run_id) == (logged_event["level"], logged_event["run_id"])
    for process in ("shard-0", "shard-1", "services", "http-0", "http-1", "supervisor"):
        (report, *_) = await stored(service, f"telemetry.metrics.{process}", 1)
        assert process == report["process"]
        assert report["metrics"]
    text = b"".join(await bodies(service, "telemetry.>")).decode() + http.get("/metrics").text
    for hidden in (*SECRETS.values(), "payl0ad-0123"):
        assert hidden not in text


async def test_runs_go_on_while_telemetry_has_nowhere_to_go(service: Service, http: httpx2.Client) -> None:
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        await store.broker.api(f"STREAM.DELETE.{names.TELEMETRY}")
    http.post("/workflows", content=WORKFLOW)
    with worker(service):
        for number in range(RUNS):
            http.post("/runs", json={"workflow": "w", "input": number})
        await until_total(http, RUNS, "penstock_run_events_total", workflow="w", event="completed")
    assert {"messages": 0, "bytes": 0, "percent": 0.0} == http.get("/health/telemetry").json()["telemetry"]["stream"]
    assert 200 == http.get("/ready").status_code
    assert not [line for line in service.log_lines() if line["level"] in ("warning", "error")]


async def bodies(service: Service, subject: str) -> list[bytes]:
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        return [one.data for one in await store.reader.subject(names.TELEMETRY, subject)]


async def logged(service: Service, event: str) -> dict[str, object] | None:
    """The log line of this event, of whichever shard."""
    lines = [orjson.loads(body) for body in await bodies(service, "telemetry.log.*")]
    return next((line for line in lines if line["event"] == event), None)


async def stored(service: Service, subject: str, count: int) -> list[dict[str, object]]:
    """What is under the subject, as soon as it is so much."""

    async def enough() -> list[bytes]:
        found = await bodies(service, subject)
        return found if len(found) >= count else []

    return [orjson.loads(body) for body in await until(enough)]
