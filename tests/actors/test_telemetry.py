"""A process's telemetry: what it writes, in which portions, and what it never writes."""

from __future__ import annotations

import asyncio
import io
import logging
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest
import structlog

from penstock.actors.telemetry.relay import PIPE_BYTES, Relay
from penstock.actors.telemetry.telemetry import LOGS_PER_TICK_MAX, Numbers, Reporter, reporting, scrubbed, secret_values
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.log_setup import configure, process_name
from penstock.config.settings import BrokerSettings, HttpSettings, LogSettings, Settings
from penstock.telemetry.tracing import Span
from penstock.telemetry.warnings import WAITING_MAX, WARNINGS
from tests.support.own_broker import own_broker
from tests.support.waiting import until, until_true


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    handlers, level, name = logging.root.handlers[:], logging.root.level, process_name()
    WARNINGS.clear()
    configure(LogSettings(format="json"), "p", io.StringIO())
    yield
    WARNINGS.clear()
    configure(LogSettings(), name)
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Store]:
    """A store of the test's own."""
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            yield store


async def logged(store: Store, process: str = "p") -> list[dict[str, object]]:
    return [
        orjson.loads(one.data)
        for one in await store.reader.subject(names.TELEMETRY, names.telemetry_subject("log", process))
    ]


async def reported(store: Store, process: str) -> list[dict[str, object]]:
    stored = await store.reader.subject(names.TELEMETRY, names.telemetry_subject("metrics", process))
    return [orjson.loads(one.data) for one in stored]


async def test_warnings_are_written_within_a_moment(own: Store) -> None:
    async with reporting(own, Numbers("p", own.meters), frozenset()):
        structlog.get_logger().warning("odd", run_id="r")
        (found,) = await until(lambda: logged(own))
    assert ("odd", "warning", "r") == (found["event"], found["level"], found["run_id"])


async def test_the_last_warning_is_written_when_the_process_ends(own: Store) -> None:
    async with reporting(own, Numbers("p", own.meters), frozenset()):
        structlog.get_logger().error("last_words")
    await own.broker.flush()
    assert ["last_words"] == [found["event"] for found in await until(lambda: logged(own))]


async def test_a_flood_of_warnings_is_written_in_portions_and_bounded(own: Store) -> None:
    reporter = Reporter(own, Numbers("p", own.meters))
    for number in range(1000):
        structlog.get_logger().warning("flood", number=number)
    await reporter.write()
    await own.telemetry.send_log("p", {"event": "after"})

    async def all_there() -> list[object]:
        events = [found["event"] for found in await logged(own)]
        return events if "after" in events else []

    assert ["flood"] * LOGS_PER_TICK_MAX + ["after"] == await until(all_there)
    assert WAITING_MAX - LOGS_PER_TICK_MAX == len(WARNINGS.waiting)
    dropped = [one.value for one in own.meters.samples() if one.name == "penstock_telemetry_dropped_total"]
    assert 1000 - WAITING_MAX == sum(dropped)


async def test_complaints_about_telemetry_itself_do_not_become_telemetry(own: Store) -> None:
    reporter = Reporter(own, Numbers("p", own.meters))
    structlog.get_logger("x").warning("broker_error", error='permissions violation for publish to "telemetry.log.p"')
    structlog.get_logger("x").warning("other")
    await reporter.write()
    await own.broker.flush()
    assert ["other"] == [found["event"] for found in await until(lambda: logged(own))]


async def test_warnings_wait_while_the_broker_is_away(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            reporter = Reporter(store, Numbers("p", store.meters))
            broker.stop()
            await until_true(lambda: not store.broker.connected)
            structlog.get_logger().error("while_away")
            async with asyncio.timeout(2):  # it does not wait for a broker, which may be away for long
                await reporter.write()
            broker.start()
            await until_true(lambda: store.broker.connected)
            await reporter.write()
            await store.broker.flush()
            await until(lambda: _is_logged(store, "while_away"))


async def _is_logged(store: Store, event: str) -> bool:
    return event in [found["event"] for found in await logged(store)]


async def test_secrets_are_hidden_wherever_they_stand(own: Store) -> None:
    settings = Settings(
        broker=BrokerSettings(password="pass-of-the-broker", token="t0ken-of-the-broker"),
        http=HttpSettings(api_token="api-t0ken", bridge_token="bridge-t0ken", webhook_secret="webhook-s3cret"),
    )
    secrets = secret_values(settings)
    assert 5 == len(secrets)
    reporter = Reporter(own, Numbers("p", own.meters), secrets)
    log = structlog.get_logger()
    for secret in sorted(secrets):
        log.warning(
            f"refused {secret}",
            error=f"it was {secret}.",
            secret_of_a_trigger="unknown-to-settings",
            token="approval-token",
        )
    log.warning("address", url="nats://user:hunter2@host:4222", note="see nats://a:hunter3@b,nats://c:hunter4@d")
    await reporter.write()
    await own.broker.flush()

    async def all_there() -> list[dict[str, object]]:
        found = await logged(own)
        return found if len(found) == 6 else []

    text = str(await until(all_there))
    for secret in (*secrets, "unknown-to-settings", "approval-token", "hunter2", "hunter3", "hunter4"):
        assert secret not in text
    assert "host:4222" in text


def test_what_is_no_text_passes_as_it_is() -> None:
    event = {"attempt": 3, "late": True, "ratio": 0.5, "none": None, "token": None, "name": "fine"}
    assert event == scrubbed(event, ("3",))
    assert {"password": "(hidden)"} == scrubbed({"password": 1234}, ())


async def test_numbers_are_written_with_name_host_and_life(own: Store) -> None:
    reporter = Reporter(own, Numbers("p", own.meters))
    await reporter.write_metrics()
    (found,) = await until(lambda: reported(own, "p"))
    assert "p" == found["process"]
    assert {"host", "pid", "life", "at", "metrics"} < found.keys()
    metrics = found["metrics"]
    assert isinstance(metrics, list)
    values = {one["name"]: one["value"] for one in metrics}
    assert 1 == values["penstock_broker_connected"]
    assert values["penstock_process_cpu_seconds_total"] > 0
    assert values["penstock_process_resident_memory_bytes"] > 1e6
    assert abs(values["penstock_process_start_time_seconds"] - time.time()) < 24 * 3600


async def test_waiting_spans_are_written(own: Store) -> None:
    trace = "ab" * 16
    for number in range(250):
        own.telemetry.offer(Span(trace, f"{number:016x}", "step a", 1, 2))
    await Reporter(own, Numbers("p", own.meters)).write()
    await own.broker.flush()

    async def all_there() -> bool:
        return len(await own.reader.subject(names.TELEMETRY, names.telemetry_subject("span", trace))) == 250

    await until(all_there)
    assert not own.telemetry.spans


async def test_a_child_speaks_for_its_supervisor(own: Store) -> None:
    relay = Relay()
    relay.name(["shard-0", "services"])
    relay.restarted("services")
    structlog.get_logger().error("process_died", name="services", code=-9)
    relay.pass_on()
    reporter = Reporter(own, Numbers("services", own.meters, relay))
    await reporter.write_metrics()
    await reporter.write()
    (found,) = await until(lambda: reported(own, "supervisor"))
    (event,) = await until(lambda: logged(own, "supervisor"))
    assert [("shard-0", 0), ("services", 1)] == [(one["labels"]["child"], one["value"]) for one in found["metrics"]]  # type: ignore[attr-defined]
    assert ("process_died", "services", -9) == (event["event"], event["name"], event["code"])


def test_counts_and_warnings_reach_a_process_that_is_started_later() -> None:
    relay = Relay()
    relay.name(["shard-0", "services"])
    structlog.get_logger().error("before")
    relay.pass_on()
    for _ in range(3):
        relay.restarted("shard-0")
    context = multiprocessing.get_context("spawn")
    answer, tell = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(relay, tell))
    process.start()
    try:
        assert answer.poll(30)
        assert ({"shard-0": 3, "services": 0}, ["before"]) == answer.recv()
    finally:
        process.join(10)


def test_a_relay_that_nobody_reads_loses_warnings_and_never_waits() -> None:
    relay = Relay()
    began = time.monotonic()
    for number in range(2000):
        structlog.get_logger().error("flood", text="x" * 400, number=number)
        relay.pass_on()
    assert time.monotonic() - began < 5
    found = relay.taken()
    assert 0 < len(found) <= PIPE_BYTES // 400
    assert "flood" == found[-1]["event"]
    assert [] == relay.taken()


def _read(relay: Relay, tell: multiprocessing.connection.Connection) -> None:
    tell.send((relay.restarts(), [event["event"] for event in relay.taken()]))
