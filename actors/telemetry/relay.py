"""The supervisor's telemetry, published by one of its children: the supervisor has no connection to the broker.

Counts of restarts are in shared memory, warnings go through a pipe. Both outlive the child that reads them.
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
LINE_BYTES_MAX = 4096  # up to this size a write to a pipe is atomic
PIPE_BYTES = 1 << 16
PER_STEP_MAX = 50

_DECODER: msgspec.json.Decoder[dict[str, Field]] = msgspec.json.Decoder(dict[str, Field])


class Relay:
    """Created by the supervisor's process and passed to a child at its start."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.names: tuple[str, ...] = ()
        self._restarts = context.RawArray(c_uint64, CHILDREN_MAX)
        self._reader, self._writer = context.Pipe(duplex=False)
        for end in (self._reader, self._writer):
            os.set_blocking(end.fileno(), False)

    def name(self, names: Sequence[str]) -> None:
        """Set the children's names, before the first of them starts."""
        assert len(names) <= CHILDREN_MAX
        self.names = tuple(names)

    @property
    def descriptors(self) -> tuple[int, int]:
        """The open files that the child needs which reads it."""
        return self._reader.fileno(), self._writer.fileno()

    def restarted(self, name: str) -> None:
        """Count a restart of this child."""
        self._restarts[self.names.index(name)] += 1

    def pass_on(self) -> None:
        """Write the supervisor's warnings to the pipe without blocking. What does not fit is dropped."""
        for event in WARNINGS.take(PER_STEP_MAX):
            line = msgspec.json.encode(event) + b"\n"
            if len(line) <= LINE_BYTES_MAX:
                with suppress(OSError):
                    os.write(self._writer.fileno(), line)

    def restarts(self) -> dict[str, int]:
        """The restarts of each child; called in the child."""
        return dict(zip(self.names, self._restarts, strict=False))

    def taken(self) -> list[dict[str, Field]]:
        """The supervisor's warnings since the last call; called in the child."""
        try:
            found = os.read(self._reader.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return []
        return [_DECODER.decode(line) for line in found.splitlines()]
