"""/metrics and /health/telemetry: one page for the whole service, in any weather."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from falcon.testing import ASGIConductor, create_scope
from msgspec import Raw
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from penstock.actors.control import run_operations
from penstock.actors.telemetry.telemetry import Numbers
from penstock.broker import names
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.run.commands import DispatchTask
from penstock.http.app import create_app
from penstock.http.system.metric_pages import MetricPages
from penstock.http.system.metrics import ANSWERS_S_MAX
from penstock.telemetry.meters import Histogram, Meters, Sample
from penstock.telemetry.metrics import METRICS
from tests.http.bridge import TOKEN, client, poll
from tests.support.conductor import LOOPBACK, Conductor
from tests.support.frontends import front_ends
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.service import free_port
from tests.support.waiting import until, until_true

CLOCK_S = 0.01  # clocks of the loop and of the test may differ
Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Page:
    """Every line, by its name and labels; one that stands there twice is an error, as for Prometheus."""
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def total(page: Page, name: str, **labels: str) -> float:
    """The sum over all lines of this name that have these labels, whatever process they are of."""
    return sum(value for (of, having), value in page.items() if of == name and labels.items() <= dict(having).items())


async def scraped(http: ASGIConductor) -> Page:
    answer = await http.simulate_get("/metrics")
    assert 200 == answer.status_code
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return parsed(answer.text)


UPLOAD_S = 1.0
COUNT_AND_SUM = ("penstock_http_request_seconds_count", "penstock_http_request_seconds_sum")
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0",
        ),
    ],
)
async def test_a_scraper_gets_the_format_that_it_asks_for(
    http: ASGIConductor, accept: str | None, content_type: str
) -> None:
    answer = await http.simulate_get("/metrics", headers={} if accept is None else {"Accept": accept})
    assert answer.headers["content-type"].startswith(content_type)
    families = openmetrics_families if "openmetrics" in content_type else text_string_to_metric_families
    assert "penstock_process_start_time_seconds" in {family.name for family in families(answer.text)}
    assert ("# EOF" in answer.text) == ("openmetrics" in content_type)


async def test_the_time_that_a_client_takes_for_its_body_is_none_of_the_request(http: ASGIConductor) -> None:
    route = "/workflows"
    before = parsed((await http.simulate_get("/metrics")).text)

    async def receive() -> dict[str, object]:
        await asyncio.sleep(UPLOAD_S)  # the client's doing, that is measured
        return {"type": "http.request", "body": b"no JSON", "more_body": False}

    async def send(event: dict[str, object]) -> None:
        pass

    headers = {"content-length": "7"}
    await http.app(
        create_scope(route, method="POST", headers=headers, host=LOOPBACK, remote_addr=LOOPBACK), receive, send
    )
    after = parsed((await http.simulate_get("/metrics")).text)
    count, took = (total(after, name, route=route) - total(before, name, route=route) for name in COUNT_AND_SUM)
    assert count == 1
    assert 0 <= took < UPLOAD_S


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[OwnBroker, Store, ASGIConductor]]:
    """A broker of the test's own, and an application at it."""
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            async with Conductor(create_app(Settings(broker=broker.settings))) as http:
                yield broker, store, http


async def test_requests_are_counted_by_route_method_and_status(http: ASGIConductor) -> None:
    for path in ("/runs/" + "0" * 32, "/runs/" + "1" * 32, "/no/such/path", "/runs/x"):
        await http.simulate_get(path)
    await http.simulate_post("/runs", body=b'{"workflow":"one"}')
    await http.simulate_request("BREW", "/runs")
    page = await scraped(http)
    assert 3 == total(page, "penstock_http_requests_total", route="/runs/{run_id}", method="GET", status="404")
    assert 1 == total(page, "penstock_http_requests_total", route="none", status="404")
    assert 1 == total(page, "penstock_http_requests_total", route="/runs", method="POST", status="201")
    assert 1 == total(page, "penstock_http_requests_total", route="/runs", method="other", status="405")
    assert 3 == total(page, "penstock_http_request_seconds_count", route="/runs/{run_id}", method="GET")
    assert 0 < total(page, "penstock_http_request_seconds_sum", route="/runs/{run_id}") < 10
    assert 3 == total(page, "penstock_http_request_seconds_bucket", route="/runs/{run_id}", le="60.0")


@pytest.mark.usefixtures("index")
async def test_runs_are_counted_by_workflow_and_status(http: ASGIConductor, store: Store) -> None:
    run_ids = [(await http.simulate_post("/runs", body=b'{"workflow":"two"}')).json["run_id"] for _ in range(3)]
    await run_operations.cancel(store, run_ids[0])

    async def indexed() -> bool:
        page = await scraped(http)
        running = total(page, "penstock_runs", workflow="two", status="running")
        return (running, total(page, "penstock_runs", workflow="two", status="cancelled")) == (2, 1)

    await until(indexed)
    assert 0 == total(await scraped(http), "penstock_run_index_lag_messages")


async def test_queues_streams_and_storage_have_metrics(own: tuple[OwnBroker, Store, ASGIConductor]) -> None:
    _, store, http = own
    async with store.tasks.consume("mail", lambda delivery: None, batch=1, room=lambda: 0):
        for _ in range(3):
            await store.tasks.send(new_run_id(), "w", DispatchTask("a", "mail", 1, 0, Raw(b"1"), {}))
        page = await scraped(http)
    assert 3 == total(page, "penstock_queue_tasks", task="mail", state="waiting")
    assert 0 < total(page, "penstock_queue_oldest_seconds", task="mail") < 60
    assert 3 == total(page, "penstock_stream_messages", stream="TASK_QUEUES")
    assert total(page, "penstock_stream_bytes", stream="TASK_QUEUES") > 0
    assert 0 < total(page, "penstock_storage_bytes") < total(page, "penstock_storage_limit_bytes")
    assert 32 == total(page, "penstock_partitions_unowned")
    assert 1 == total(page, "penstock_processes") == total(page, "penstock_broker_connected")


async def test_every_process_that_answers_is_on_the_page(http: ASGIConductor, broker_settings: BrokerSettings) -> None:
    async with AsyncExitStack() as stack:
        for number in range(2):
            meters = Meters()
            other = await stack.enter_async_context(open_store(broker_settings, f"shard-{number}", meters=meters))
            meters.counter("penstock_step_events_total").add("t", "completed")
            meters.readings("penstock_partition_owner", lambda number=number: {(str(number),): 1})  # type: ignore[misc]
            await other.telemetry.answer(Numbers(f"shard-{number}", meters).reports)
            await other.broker.flush()

        async def all_there() -> Page | None:
            page = await scraped(http)
            return page if total(page, "penstock_processes") == 3 else None

        page = await until(all_there)
    assert page is not None
    assert 2 == total(page, "penstock_step_events_total", task="t", event="completed")
    assert 1 == total(page, "penstock_step_events_total", task="t", event="completed", process="shard-1")
    assert 30 == total(page, "penstock_partitions_unowned")


async def test_only_the_first_scrape_waits_for_processes_that_are_not_known(http: ASGIConductor) -> None:
    took = []
    for _ in range(6):
        began = time.monotonic()
        await scraped(http)
        took.append(time.monotonic() - began)
    assert ANSWERS_S_MAX <= took[0] + CLOCK_S
    assert min(took[1:]) < ANSWERS_S_MAX


async def test_without_a_broker_the_page_has_the_metrics_of_its_own_process(
    own: tuple[OwnBroker, Store, ASGIConductor],
) -> None:
    broker, store, http = own
    await scraped(http)
    broker.stop()
    await until_true(lambda: not store.broker.connected)

    async def noticed() -> Page | None:
        page = await scraped(http)
        return page if total(page, "penstock_broker_connected") == 0 else None

    began = time.monotonic()
    page = await until(noticed)
    assert page is not None
    assert time.monotonic() - began < 5
    assert total(page, "penstock_http_requests_total", route="/metrics", status="200") >= 1
    assert total(page, "penstock_process_cpu_seconds_total") > 0
    answer = await http.simulate_get("/health/telemetry")
    assert (200, "healthy") == (answer.status_code, answer.json["status"])
    assert {"messages": 0, "bytes": 0, "percent": 0.0} == answer.json["telemetry"]["stream"]


async def test_an_application_that_never_had_a_broker_has_a_page() -> None:
    settings = Settings(broker=BrokerSettings(port=free_port()))
    async with Conductor(create_app(settings)) as http:
        page = await scraped(http)
    assert 1 == total(page, "penstock_processes")


async def test_metrics_need_the_api_token_and_the_health_of_telemetry_does_not(broker_settings: BrokerSettings) -> None:
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token="sesame"))
    async with Conductor(create_app(settings)) as http:
        denied = await http.simulate_get("/metrics")
        allowed = await http.simulate_get("/metrics", headers={"Authorization": "Bearer sesame"})
        health = await http.simulate_get("/health/telemetry")
    assert (401, 200, 200) == (denied.status_code, allowed.status_code, health.status_code)
    assert 1 == total(parsed(allowed.text), "penstock_http_requests_total", status="401")
    assert "sesame" not in allowed.text


async def test_the_health_of_telemetry_says_how_full_its_stream_is(own: tuple[OwnBroker, Store, ASGIConductor]) -> None:
    _, store, http = own
    config = (await store.broker.api(f"STREAM.INFO.{names.TELEMETRY}"))["config"]
    await store.broker.api(f"STREAM.UPDATE.{names.TELEMETRY}", {**config, "max_bytes": 10_000})
    await store.telemetry.send_log("p", {"event": "e", "text": "x" * 400})

    async def stored() -> bool:
        return bool((await http.simulate_get("/health/telemetry")).json["telemetry"]["stream"]["messages"])

    await until(stored)
    stream = (await http.simulate_get("/health/telemetry")).json["telemetry"]["stream"]
    assert {"messages", "bytes", "percent"} == stream.keys()
    assert round(stream["bytes"] / 100, 3) == stream["percent"]
    assert 4 < stream["percent"] < 10


async def test_a_missing_stream_is_no_trouble(own: tuple[OwnBroker, Store, ASGIConductor]) -> None:
    _, store, http = own
    await store.broker.api(f"STREAM.DELETE.{names.TELEMETRY}")
    answer = await http.simulate_get("/health/telemetry")
    assert (200, {"messages": 0, "bytes": 0, "percent": 0.0}) == (
        answer.status_code,
        answer.json["telemetry"]["stream"],
    )
    page = await scraped(http)
    assert 0 == total(page, "penstock_stream_messages", stream="TELEMETRY")
    assert total(page, "penstock_storage_limit_bytes") > 0


def report(process: str, *samples: Sample, life: str = "") -> ProcessReport:
    return ProcessReport(process, "h", 1, life or process, "2026-01-01T00:00:00Z", list(samples))


def test_histograms_are_cumulative_and_add_up() -> None:
    histogram = Histogram(METRICS["penstock_publish_seconds"].bounds)
    for value in (0.0001, 0.0007, 0.0007, 99.0):
        histogram.observe(value)
    sample = Sample("penstock_publish_seconds", histogram.sum, {}, histogram.counts)
    page = parsed(MetricPages().page([report("p", sample, life="1"), report("p", sample, life="2")], []).decode())
    assert (2, 6) == tuple(total(page, "penstock_publish_seconds_bucket", le=le) for le in ("0.0005", "0.001"))
    assert (6, 8) == tuple(total(page, "penstock_publish_seconds_bucket", le=le) for le in ("10.0", "+Inf"))
    assert 8 == total(page, "penstock_publish_seconds_count")
    assert round(2 * histogram.sum, 9) == round(total(page, "penstock_publish_seconds_sum"), 9)


@pytest.mark.parametrize(
    "sample",
    [
        Sample("penstock_of_a_later_version", 1),
        Sample("penstock_actors", 1, {"odd": "label"}),
        Sample("penstock_actors", 1, {}, [1, 2]),
        Sample("penstock_publish_seconds", 1),
        Sample("penstock_publish_seconds", 1, {}, [1]),
        Sample("penstock_partitions_unowned", 7),
    ],
)
def test_what_does_not_fit_the_table_is_left_out(sample: Sample) -> None:
    assert b"" == MetricPages().page([report("p", sample)], []).strip()


def test_labels_of_any_text_leave_a_page_that_can_be_read() -> None:
    odd = 'a"b\\c\nd{}=,é'
    page = parsed(
        MetricPages()
        .page([report("p", Sample("penstock_step_events_total", 3, {"task": odd, "event": "started"}))], [])
        .decode()
    )
    assert 3 == total(page, "penstock_step_events_total", task=odd)


async def test_polls_of_the_bridge_are_counted(own: tuple[OwnBroker, Store, ASGIConductor]) -> None:
    broker, store, http = own
    with front_ends(broker.settings, 1, TOKEN) as (end,):
        async with client(end.url) as worker:
            polling = asyncio.create_task(poll(worker, "mail", max_tasks=5))
            await until_total(http, 1, "penstock_bridge_pollers")
            await store.tasks.send(new_run_id(), "w", DispatchTask("a", "mail", 1, 0, Raw(b"1"), {}))
            assert 1 == len(await polling)
        await until_total(http, 1, "penstock_bridge_tasks_total", task="mail")
        assert 0 == total(await scraped(http), "penstock_bridge_pollers")


async def until_total(http: ASGIConductor, wanted: float, name: str, **labels: str) -> None:
    async def reached() -> bool:
        return total(await scraped(http), name, **labels) == wanted

    await until(reached)
