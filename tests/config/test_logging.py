"""Where events go: to structlog where somebody has configured it, else to the standard library, as the application
wants it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from penstock.config.logging import get_logger, is_configured


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_without_configuration_an_event_is_a_record_of_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock"):
        get_logger().info("task_failed", task="hello", attempt=2)

    [record] = caplog.records
    assert ("penstock", logging.INFO, "task_failed task='hello' attempt=2") == (
        record.name,
        record.levelno,
        record.getMessage(),
    )
    assert {"task": "hello", "attempt": 2} == record.__dict__["fields"]
    assert "test_logging.py" == record.filename


def test_a_level_that_the_application_does_not_want_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        get_logger().info("quiet")
        get_logger().warning("loud")

    assert ["loud"] == [record.getMessage() for record in caplog.records]


def test_an_exception_keeps_its_traceback_and_its_name_cannot_be_formatted(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("100 %s")
    except ValueError:
        get_logger().exception("odd", text="50 %d")

    [record] = caplog.records
    assert "odd text='50 %d'" == record.getMessage()
    assert record.exc_info is not None
    assert ValueError is record.exc_info[0]


def test_a_configured_structlog_gets_the_events(caplog: pytest.LogCaptureFixture) -> None:
    with capture_logs() as lines:
        get_logger().warning("lease_lost", partition=3)

    assert [{"event": "lease_lost", "partition": 3, "log_level": "warning"}] == lines
    assert [] == caplog.records


def test_logging_that_an_application_has_configured_is_known() -> None:
    structlog.configure(processors=[])
    assert is_configured()


def test_a_worker_inside_an_application_logs_as_the_application_does() -> None:
    code = """
import asyncio, logging
logging.basicConfig(format="APP %(name)s %(levelname)s %(message)s", level=logging.INFO)
from penstock.worker import Worker
worker = Worker(transport="bridge", url="http://127.0.0.1:1", bridge_token="t", worker_id="embedded")
worker.task("hello")(lambda: None)
async def main():
    serving, logged = asyncio.ensure_future(worker.serve()), asyncio.Event()
    logging.getLogger("penstock").addFilter(lambda record: logged.set() or True)
    await asyncio.wait_for(logged.wait(), 30)
    serving.cancel()
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "APP penstock WARNING worker_waits_for_service error=" in ran.stderr
    assert "" == ran.stdout
