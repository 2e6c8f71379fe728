"""What everybody logs through: events with fields, `log.info("step_failed", run_id=…, attempt=…)`.

A process of ours writes them as log_setup.py says. A worker inside somebody's application must log as the application
does: where structlog is not configured, events go to the logger `penstock` of the standard library, as text and as
`fields` of the record. structlog itself is imported only by who configures it: it is a fifth of the time that `import
penstock.worker` would take.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

# From the method that was called to the caller's line, for `%(filename)s:%(lineno)d`.
CALLER_FRAMES = 3


class EventLog:
    """Safe in any thread. Where a line goes is looked up for each one: logging may be configured after a module is
    imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the exception that is being handled, or `exc_info`."""
        self._write("error", event, {"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if structlog := _configured_structlog():
            getattr(structlog.get_logger(self._name), level)(event, **fields)
        else:
            _to_standard_library(self._name, logging.getLevelNamesMapping()[level.upper()], event, fields)


def get_logger(name: str = "penstock") -> EventLog:
    """The log of this process; `name` is a logger of the standard library where structlog is not configured."""
    return EventLog(name)


def is_configured() -> bool:
    """Whether someone has said already where this process logs to."""
    return bool(_configured_structlog() or logging.root.handlers)


def _configured_structlog() -> Any:
    structlog = sys.modules.get("structlog")
    return structlog if structlog is not None and structlog.is_configured() else None


def _to_standard_library(name: str, level: int, event: str, fields: dict[str, Any]) -> None:
    logger = logging.getLogger(name)
    if logger.isEnabledFor(level):
        exc_info = fields.pop("exc_info", None)
        text = " ".join((event, *(f"{key}={value!r}" for key, value in fields.items())))
        extra = {"event": event, "fields": fields}
        logger.log(level, "%s", text, exc_info=exc_info, extra=extra, stacklevel=CALLER_FRAMES + 1)
