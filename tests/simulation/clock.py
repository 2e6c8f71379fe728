"""What the service's modules take for time, ids and chance while they are simulated."""

from __future__ import annotations

import datetime as real_datetime
import random as real_random
import secrets as real_secrets
import sys
import time as real_time
import uuid as real_uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any

import structlog
import tenacity
import tenacity.wait
import uuid_utils

from penstock.broker import names
from penstock.broker.run_ids import RunIds, new_run_id
from penstock.config.process import crash_points
from tests.simulation.loop import LIFE, Life, Loop

EPOCH = 1_790_000_000.0
PARTITIONS = 2


class Time:
    """In the place of the module `time`, of what makes ids, and of the boundaries at which a process may crash.

    One for all worlds: a new world begins with `begin`.
    """

    strftime, gmtime = staticmethod(real_time.strftime), staticmethod(real_time.gmtime)

    def begin(self, loop: Loop, seed: int) -> None:
        self._loop = loop
        self._last = 0.0
        self._run_ids: dict[Life | None, RunIds] = {}
        self.chance = Random(seed)
        self.on_point: Callable[[str], None] = lambda point: None

    def time(self) -> float:
        """No two looks at it give the same microsecond, as outside."""
        life = LIFE.get()
        self._last = max(self._loop.now, self._last + 1e-6)
        return EPOCH + self._last + (life.skew_s if life is not None else 0.0)

    def time_ns(self) -> int:
        return int(self.time() * 1e6) * 1000

    def monotonic(self) -> float:
        return self._loop.now

    perf_counter = monotonic
    CLOCK_BOOTTIME = real_time.CLOCK_BOOTTIME

    def clock_gettime(self, clock: int) -> float:
        """Every clock that is asked for so goes on while a process is paused."""
        return self._loop.now

    def reached(self, point: str) -> None:
        """A boundary between two effects: a crash may come here."""
        self.on_point(point)

    def uniform(self, low: float, high: float) -> float:
        return self.chance.uniform(low, high)

    def random(self) -> float:
        return self.chance.random()

    def token_hex(self, count: int) -> str:
        return self.chance.randbytes(count).hex()

    def uuid4(self) -> real_uuid.UUID:
        return real_uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def uuid7(self) -> real_uuid.UUID:
        made_ms = int(self.time() * 1000)
        return real_uuid.UUID(
            hex=f"{made_ms:012x}7{self.chance.getrandbits(12):03x}{self.chance.getrandbits(62) | 1 << 63:016x}"
        )

    def new_run_id(self) -> str:
        """Each process has its own, by its clock."""
        return self._run_ids.setdefault(LIFE.get(), RunIds()).new()


TIME = Time()


class Datetime(real_datetime.datetime):
    @classmethod
    def now(cls, tz: real_datetime.tzinfo | None = None) -> Datetime:
        return cls.fromtimestamp(TIME.time(), tz)


STANDS_FOR: dict[int, Any] = {
    id(real_time): TIME,
    id(real_time.time): TIME.time,
    id(real_time.monotonic): TIME.monotonic,
    id(real_random): TIME,
    id(real_secrets): TIME,
    id(real_uuid.uuid4): TIME.uuid4,
    id(uuid_utils.uuid7): TIME.uuid7,
    id(new_run_id): TIME.new_run_id,
    id(real_datetime.datetime): Datetime,
    id(crash_points.reached): TIME.reached,
}


@contextmanager
def simulated() -> Iterator[None]:
    """For the time of the block, every module of the shell and of the broker's faces lives in the simulation, and logs
    nothing."""
    changed: list[tuple[ModuleType, str, Any]] = []
    for module in [*_modules(), tenacity, tenacity.wait]:
        for name, value in list(vars(module).items()):
            stands_in = PARTITIONS if name == "PARTITIONS" else STANDS_FOR.get(id(value))
            if stands_in is not None:
                changed.append((module, name, value))
                setattr(module, name, stands_in)
    names.partition.cache_clear()  # what is known counts on another number of partitions
    configuration = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50), cache_logger_on_first_use=False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "coroutine .* was never awaited", RuntimeWarning
            )  # of a process that was killed before
            yield
    finally:
        structlog.configure(**configuration)
        names.partition.cache_clear()
        for module, name, value in changed:
            setattr(module, name, value)


def _modules() -> list[ModuleType]:
    """Those that are loaded: whoever simulates has imported what it simulates."""
    prefixes = ("penstock.actors.", "penstock.broker.")
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(prefixes)]
