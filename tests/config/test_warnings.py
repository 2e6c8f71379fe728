"""What is kept of the log for those who pass it on: bounded, short, and never more than the event's own fields."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from penstock.config.log_setup import configure, process_name
from penstock.config.settings import LogSettings
from penstock.telemetry.warnings import FIELDS_MAX, TEXT_CHARS_MAX, WAITING_MAX, WARNINGS


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    handlers, level, name = logging.root.handlers[:], logging.root.level, process_name()
    WARNINGS.clear()
    configure(LogSettings(format="json"), "shard-7", io.StringIO())
    yield
    WARNINGS.clear()
    configure(LogSettings(), name)
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


def test_warnings_and_errors_are_kept_with_their_fields_and_infos_are_not() -> None:
    log = structlog.get_logger()
    log.info("fine")
    log.warning("odd", run_id="r", attempt=2)
    logging.getLogger("gunicorn.error").error("worker %s failed", 7)
    first, second = WARNINGS.take(10)
    assert ("odd", "warning", "r", 2, "shard-7") == tuple(
        first[name] for name in ("event", "level", "run_id", "attempt", "process")
    )
    assert ("worker 7 failed", "error") == (second["event"], second["level"])
    assert not any(name.startswith("_") for name in second)
    assert {"warning": 1, "error": 1} == WARNINGS.levels
    assert [] == WARNINGS.take(10)


def test_an_exception_is_reported_by_type_and_place_not_by_text() -> None:
    try:
        raise ValueError("what a user sent")
    except ValueError as error:
        structlog.get_logger().exception("first")
        logging.getLogger("a").exception("second")
        structlog.get_logger().error("third", exc_info=error, cause=error)
    for event in WARNINGS.take(10):
        assert "ValueError" == event["exception"]
        assert str(event["where"]).startswith("test_warnings.py:")
        assert "user" not in str(event)


def test_long_texts_are_cut_many_fields_too_and_structures_only_named() -> None:
    structlog.get_logger().warning("e", text="x" * 10_000, payload={"secret": 1}, **{f"f{n}": n for n in range(100)})
    (event,) = WARNINGS.take(10)
    assert TEXT_CHARS_MAX == len(str(event["text"]))
    assert "<dict>" == event["payload"]
    assert FIELDS_MAX == len(event)


def test_a_flood_is_counted_and_not_kept() -> None:
    for _ in range(WAITING_MAX + 50):
        structlog.get_logger().error("again")
    assert WAITING_MAX == len(WARNINGS.waiting)
    assert 50 == WARNINGS.dropped
    assert {"error": WAITING_MAX + 50} == WARNINGS.levels
    assert 5 == len(WARNINGS.take(5))
