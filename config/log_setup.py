"""Logging for every process: events with fields, one line each on stderr, for people (console) or machines (JSON).

What libraries write through the standard library's logging (gunicorn, the broker's client) comes out in the same form.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO, cast

import orjson

from penstock.config.settings import LogSettings
from penstock.config.unused import not_imported
from penstock.telemetry.log_lines import LOG_LINES
from penstock.telemetry.warnings import WARNINGS

with not_imported("rich"):  # structlog would import it for tracebacks that are not used here: 4 MB in each process
    import structlog
    from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

# The broker's client reports every reconnect attempt; what matters of it is logged by broker/.
QUIET = ("nats", "asyncio", "httpx2", "httpcore2")

_process = "penstock"


def process_name() -> str:
    """The name under which this process logs."""
    return _process


class _Unfailing:
    """A stream that drops lines which cannot be written, as on a full disk: logging never raises an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def configure(log: LogSettings, process: str, stream: TextIO | None = None) -> None:
    """Route all logging of this process to `stream` (stderr) under the name `process`. Calling it again replaces
    everything.

    Set up in a parent, it holds in forked children too: the pid is taken with each line.
    """
    global _process
    _process = process
    stream = cast(TextIO, _Unfailing(sys.stderr if stream is None else stream))
    level = logging.getLevelNamesMapping()[log.level.upper()]
    processors = _processors(process)
    _configure_structlog(level, processors, _renderers(log, stream), stream)
    _configure_stdlib(level, processors, _renderers(log, stream), stream)


def _configure_structlog(
    level: int, processors: Sequence[Processor], renderers: Sequence[Processor], stream: TextIO
) -> None:
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *processors, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )


def _configure_stdlib(
    level: int, processors: Sequence[Processor], renderers: Sequence[Processor], stream: TextIO
) -> None:
    handler = logging.StreamHandler(stream)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*processors, structlog.stdlib.add_logger_name], processors=[remove, *renderers]
        )
    )
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _processors(process: str) -> list[Processor]:
    def add_process(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        event["process"] = process
        event["pid"] = os.getpid()
        return event

    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_process,
        WARNINGS.keep,
        LOG_LINES.pass_on,
    ]


def _renderers(log: LogSettings, stream: TextIO) -> list[Processor]:
    if log.format == "json":
        return [structlog.processors.format_exc_info, _to_json]
    return [_escape, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=_indented_traceback)]


def _escape(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape control characters in what others sent: it may neither begin a line of the log nor control the terminal.
    JSON needs none of this."""
    return {key: _printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _indented_traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Indent the lines of an exception, so that none looks like a line of the log."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.writelines(f"\n  {_printable(line)}" for line in text.getvalue().strip().splitlines())


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _to_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    return orjson.dumps(event, default=_as_text, option=orjson.OPT_NON_STR_KEYS).decode()


def _as_text(value: Any) -> str:
    return repr(value)
