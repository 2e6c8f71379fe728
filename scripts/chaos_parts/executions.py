"""Executions of steps, as workers write them down."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, json


class Execution(Struct, frozen=True):
    """One execution that a worker began: of which step, and the digest of the input that it was given."""

    run_id: str
    step_id: str
    attempt: int
    iteration: int
    input: str
    at: float

    @property
    def key(self) -> tuple[str, int, int]:
        """Which one it is of its run's."""
        return self.step_id, self.attempt, self.iteration


_DECODER = json.Decoder(Execution)


def digest(value: Any) -> str:
    """The same for the same JSON, however it is written."""
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def read_all(directory: Path) -> list[Execution]:
    return [_DECODER.decode(line) for path in sorted(directory.iterdir()) for line in _lines(path)]


def _lines(path: Path) -> Iterable[bytes]:
    return path.read_bytes().splitlines()
