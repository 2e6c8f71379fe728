"""The log of an execution: a handler of the standard library's logging, a processor of structlog, and methods."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

from penstock.broker.live import lines
from penstock.engine.times import rfc3339

# Attributes of every record: what a call gave as `extra` is not among them.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_PROCESSOR_ARGUMENTS = 3
_WORSE = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)

_current: ContextVar[StepLog | None] = ContextVar("step_log", default=None)


class StepLog(logging.Handler):
    """Belongs to one execution; call it from any thread. A line that finds no room is dropped and counted.

        ctx.log("charged", amount=12)                     # level info
        ctx.log.warning("tried twice", code=503)
        ctx.log.info("page %d of %d", 2, 7)
        logging.getLogger("payments").addHandler(ctx.log)
        structlog.wrap_logger(logger, processors=[ctx.log, …])

    As a handler it takes what its own execution logs, and removes itself from all loggers when that ends.
    """

    def __init__(self, put: Callable[[bytes], None]) -> None:
        """`put` takes the JSON of a line."""
        super().__init__()
        self._put: Callable[[bytes], None] | None = put
        _current.set(self)

    def __call__(self, *args: Any, level: str = "info", **fields: Any) -> MutableMapping[str, Any]:
        """Log one line, or, with what structlog gives a processor, its event."""
        if len(args) == _PROCESSOR_ARGUMENTS and isinstance(args[2], MutableMapping):
            return self._event(args[1], args[2])
        (text,) = args
        self._line(str(text), level, time.time(), fields)
        return fields

    def debug(self, text: object, *args: object, **fields: Any) -> None:
        self._line(_formatted(text, args), "debug", time.time(), fields)

    def info(self, text: object, *args: object, **fields: Any) -> None:
        self._line(_formatted(text, args), "info", time.time(), fields)

    def warning(self, text: object, *args: object, **fields: Any) -> None:
        self._line(_formatted(text, args), "warning", time.time(), fields)

    def error(self, text: object, *args: object, **fields: Any) -> None:
        self._line(_formatted(text, args), "error", time.time(), fields)

    def critical(self, text: object, *args: object, **fields: Any) -> None:
        self._line(_formatted(text, args), "critical", time.time(), fields)

    def exception(self, text: object, *args: object, **fields: Any) -> None:
        """Log a line of level error with the traceback of the exception that is being handled."""
        trace = traceback.format_exc().rstrip()
        self._line(f"{_formatted(text, args)}\n{trace}", "error", time.time(), fields)

    def emit(self, record: logging.LogRecord) -> None:
        if _current.get() not in (None, self):  # of another execution, which has the same logger
            return
        try:
            extra = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
            self._line(self.format(record), _level(record.levelno), record.created, {"logger": record.name, **extra})
        except Exception:  # as every handler: what cannot be formatted must not fail the function
            self.handleError(record)

    def end(self) -> None:
        """The execution has ended: take nothing more, and leave all loggers."""
        self._put = None
        for logger in (logging.root, *logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger) and self in logger.handlers:
                logger.removeHandler(self)
        self.close()

    def _event(self, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        fields = {name: value for name, value in event.items() if name not in ("event", "level", "timestamp")}
        self._line(str(event.get("event", "")), str(event.get("level", method)), time.time(), fields)
        return event

    def _line(self, text: str, level: str, at: float, fields: Mapping[str, Any]) -> None:
        if put := self._put:
            put(lines.line(text, lines.level_of(level) or "info", rfc3339(at), lines.as_fields(fields)))


def _level(number: int) -> str:
    return next((name for least, name in _WORSE if number >= least), "debug")


def _formatted(text: object, args: tuple[object, ...]) -> str:
    """The text with its arguments, as the standard library's logging formats them. What cannot be formatted is shown
    as it is: it must not fail the function."""
    if not args:
        return str(text)
    try:
        return str(text) % args
    except (TypeError, ValueError):
        return f"{text} {args!r}"
