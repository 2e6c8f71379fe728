"""What a log line looks like, whoever wrote it."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from penstock.config.log_setup import configure
from penstock.config.settings import LogSettings


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line_has_event_fields_process_and_pid() -> None:
    stream = io.StringIO()
    configure(LogSettings(format="json"), "shard-1", stream)
    structlog.get_logger().info("step_failed", run_id="r", attempt=2, cause=ValueError("x"))
    (line,) = lines(stream)
    assert ("step_failed", "info", "r", 2) == (line["event"], line["level"], line["run_id"], line["attempt"])
    assert ("shard-1", os.getpid()) == (line["process"], line["pid"])
    assert "ValueError('x')" == line["cause"]


def test_standard_logging_comes_out_in_the_same_form() -> None:
    stream = io.StringIO()
    configure(LogSettings(format="json"), "http", stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logging.getLogger("gunicorn.error").exception("worker %s failed", 7)
    (line,) = lines(stream)
    assert ("worker 7 failed", "error", "gunicorn.error", "http") == (
        line["event"],
        line["level"],
        line["logger"],
        line["process"],
    )
    assert "RuntimeError: boom" in str(line["exception"])


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure(LogSettings(level="warning", format="json"), "x", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("a").info("quiet")
    logging.getLogger("nats").warning("loud")
    assert ["loud"] == [line["event"] for line in lines(stream)]


def test_console_format_has_no_colours_away_from_a_terminal() -> None:
    stream = io.StringIO()
    configure(LogSettings(format="console"), "x", stream)
    structlog.get_logger().warning("slow", took_s=1)
    assert "slow" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


FORGED = "2026-11-21T12:00:00Z [info     ] paid"


def test_no_text_begins_a_line_of_the_log_or_steers_the_terminal() -> None:
    stream, foreign = io.StringIO(), f"a\n{FORGED}\r\x1b[2J\x9b31m\u2028\x00"
    configure(LogSettings(format="console"), "x", stream)
    structlog.get_logger().warning("refused", path=foreign, quoted=f"{foreign} 'b'")
    logging.getLogger("gunicorn.error").warning("invalid request: %s", foreign)
    try:
        raise ValueError(foreign)
    except ValueError:
        structlog.get_logger().exception("failed", text=foreign)
    written = stream.getvalue()
    assert not [one for one in written if not one.isprintable() and one != "\n"]
    assert [" ".join(line.split()[1:3]) for line in written.splitlines() if not line.startswith("  ")] == [
        "[warning ]",
        "[warning ]",
        "[error ]",
    ]
    assert "ValueError: a" in written


def test_json_holds_any_text_on_its_line() -> None:
    stream, foreign = io.StringIO(), f"a\n{FORGED}\x1b[2J\u2028"
    configure(LogSettings(format="json"), "x", stream)
    structlog.get_logger().warning("refused", path=foreign)
    assert foreign == json.loads(stream.getvalue())["path"]
    assert 1 == stream.getvalue().count("\n")


class Full(io.StringIO):
    """What a disk without room does with every line, since nothing is kept back for long."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_takes_no_bytes_fails_nobody_who_logs(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings(format="json"), "shard-0", Full())
    structlog.get_logger().error("storage_not_writable")
    logging.getLogger("gunicorn.error").error("told by a library")
    assert capsys.readouterr().err == ""  # nor is a traceback put in place of the line
