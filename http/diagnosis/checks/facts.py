"""What the checks of the service look at. Times are s since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from penstock.engine.limits.names import LimitName
from penstock.engine.waiting.facts import TaskKind


class Trouble(NamedTuple):
    """What a check has found, and what can be done: a sentence each."""

    text: str
    remedy: str


class WaitingQueue(Struct, frozen=True):
    """Tasks of one type and group: `waiting` for a worker since `oldest_at` (RFC 3339), and `in_hand` of workers.
    `workers` are registered for it; `asked`: one of them, or another client, requests tasks now."""

    kind: TaskKind
    waiting: int
    in_hand: int
    workers: int
    asked: bool
    oldest_at: str | None = None


class UnreadConsumer(Struct, frozen=True):
    """A consumer with messages that nobody requests."""

    stream: str
    name: str
    pending: int


class PartitionLag(Struct, frozen=True):
    """Events that are not delivered to their engine, the first of them `seconds` old, and of this partition. They are
    of so many `partitions`, or fewer."""

    partition: int
    events: int
    seconds: float
    partitions: int = 1


class WaitedLimit(Struct, frozen=True):
    """A limit for which so many are `waiting`. It allows `allowed` now, which is `overridden` or registered. `paused`
    are the runs among its oldest holders that are paused."""

    name: LimitName
    allowed: int
    waiting: int
    overridden: bool = False
    paused: tuple[str, ...] = ()


class ServiceFacts(Struct, frozen=True):
    """`fsync` is empty for an external broker, whose mode is not visible. `clocks` are the differences of the
    processes' clocks from the broker's, by process, in s. `disk` are free and all bytes of the disk of an embedded
    broker. `storage` is why nothing is stored; `used` bytes are stored of at most `limit`. `versions` are those of the
    processes and Python workers, with who has them. `unknown` are checks for which something could not be read, with
    the reason."""

    fsync: str = "always"
    clocks: Mapping[str, float] = {}
    disk: tuple[int, int] | None = None
    storage: str = ""
    used: int = 0
    limit: int | None = None
    queues: tuple[WaitingQueue, ...] = ()
    unread: tuple[UnreadConsumer, ...] = ()
    limits: tuple[WaitedLimit, ...] = ()
    dead_letters: int = 0
    unowned: frozenset[int] = frozenset()
    triggers_run: bool = True
    lags: tuple[PartitionLag, ...] = ()
    index_alive: bool = True
    index_behind: int = 0
    index_behind_s: float = 0.0
    versions: Mapping[str, tuple[str, ...]] = {}
    unknown: Mapping[str, str] = {}
