"""What a supervisor tells through one of its children, having no connection of its own: how often it started whom
again, and what its log warns of. The counts are in shared memory, the warnings go through a pipe; both outlive the
child that reads them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_uint64

import msgspec

from penstock.telemetry.warnings import WARNINGS, Field

CHILDREN_MAX = 128
LINE_BYTES_MAX = 4096  # so much goes into a pipe as a whole or not at all
PIPE_BYTES = 1 << 16
PER_STEP_MAX = 50

_DECODER: msgspec.json.Decoder[dict[str, Field]] = msgspec.json.Decoder(dict[str, Field])


class Relay:
    """Made by the supervisor's process and handed to a child when that starts."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.names: tuple[str, ...] = ()
        self._restarts = context.RawArray(c_uint64, CHILDREN_MAX)
        self._reader, self._writer = context.Pipe(duplex=False)
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)

    def name(self, names: Sequence[str]) -> None:
        """Say who the children are, before the first of them starts."""
        assert len(names) <= CHILDREN_MAX
        self.names = tuple(names)

    def restarted(self, name: str) -> None:
        """Count one of the supervisor's children that was started again."""
        self._restarts[self.names.index(name)] += 1

    def pass_on(self) -> None:
        """Hand the supervisor's warnings over, without waiting for anyone: what does not fit is lost."""
        for event in WARNINGS.take(PER_STEP_MAX):
            line = msgspec.json.encode(event) + b"\n"
            if len(line) <= LINE_BYTES_MAX:
                with suppress(OSError):
                    os.write(self._writer.fileno(), line)

    def restarts(self) -> dict[str, int]:
        """How often each child was started again; in the child."""
        return dict(zip(self.names, self._restarts, strict=False))

    def taken(self) -> list[dict[str, Field]]:
        """The supervisor's warnings since the last time; in the child."""
        try:
            found = os.read(self._reader.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return []
        return [_DECODER.decode(line) for line in found.splitlines()]
