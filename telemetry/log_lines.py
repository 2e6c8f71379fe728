"""The lines of this process's log on their way elsewhere, besides stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

EventDict = Any  # as structlog has it, which is not imported here


class LogLines:
    """`export` gets each line that is logged; None: nobody does."""

    def __init__(self) -> None:
        self.export: Callable[[Mapping[str, object]], None] | None = None

    def pass_on(self, logger: object, method: str, event: EventDict) -> EventDict:
        """A processor of structlog, which changes nothing."""
        if self.export is not None:
            self.export(event)
        return event


LOG_LINES = LogLines()
"""This process's."""
