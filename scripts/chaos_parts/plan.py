"""What is to happen to the service, and when: the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.config.limits import BRIDGE_AWAY_S, WORKER_TTL_S

PAUSE_S = (0.5, 3.0)
LONG_PAUSE_S = (5.0, 8.0)  # longer than any lease
LONG_SHARE = 0.35
FILLED_S = (2.0, 5.0)
# What a killed worker of the bridge held, until others have it: the process that had its stream may have been killed,
# too.
BRIDGE_LOST_S_MAX = WORKER_TTL_S + 3 * BRIDGE_AWAY_S


class Deed(StrEnum):
    KILL = "kill"
    TERM = "term"
    FREEZE = "freeze"
    FILL = "fill"


class Fault(Struct, frozen=True):
    """`at_s` is after the load's begin, `pause_s` how long a process is frozen, or store or disk full; `pick`, from 0
    to 1, says which of the processes of that role it is."""

    at_s: float
    deed: Deed
    role: str
    pause_s: float
    pick: float

    def __str__(self) -> str:
        pause = f" for {self.pause_s:.1f} s" if self.pause_s else ""
        return f"{self.at_s:6.1f}  {self.deed} {self.role}{pause}"


# So many of each in a round. With every fault 2.4 s apart a round is a minute.
ROUND: Sequence[tuple[int, Deed, str]] = (
    (3, Deed.KILL, "shard"),
    (3, Deed.FREEZE, "shard"),
    (3, Deed.KILL, "worker"),
    (2, Deed.FREEZE, "worker"),
    (1, Deed.KILL, "bridge-worker"),
    (2, Deed.KILL, "http-worker"),
    (1, Deed.FREEZE, "http-worker"),
    (1, Deed.KILL, "http"),
    (1, Deed.KILL, "services"),
    (1, Deed.FREEZE, "services"),
    (1, Deed.KILL, "broker"),
    (1, Deed.TERM, "broker"),
    (1, Deed.FREEZE, "broker"),
    (1, Deed.KILL, "serve"),
    (1, Deed.KILL, "http-tasks"),
    (1, Deed.FILL, "store"),
    (1, Deed.FILL, "disk"),
)


def plan(seed: int, seconds: float, every_s: float) -> list[Fault]:
    """The faults of a storm of so many seconds, in their order: whole rounds, each shuffled anew."""
    dice = random.Random(seed)
    faults: list[Fault] = []
    for deed, role in _rounds(dice):
        at_s = (len(faults) + 1 + dice.uniform(-0.3, 0.3)) * every_s
        if at_s > seconds:
            return faults
        if (deed, role) == (Deed.KILL, "bridge-worker") and at_s + BRIDGE_LOST_S_MAX > seconds:
            deed = Deed.FREEZE  # what it holds would be kept for it long after the storm
        faults.append(Fault(round(at_s, 2), deed, role, _pause_s(dice, deed), dice.random()))
    raise AssertionError("rounds never end")


def _rounds(dice: random.Random) -> Iterator[tuple[Deed, str]]:
    while True:
        cards = [(deed, role) for count, deed, role in ROUND for _ in range(count)]
        dice.shuffle(cards)
        yield from cards


def _pause_s(dice: random.Random, deed: Deed) -> float:
    bounds = LONG_PAUSE_S if dice.random() < LONG_SHARE else PAUSE_S
    match deed:
        case Deed.FREEZE:
            return round(dice.uniform(*bounds), 1)
        case Deed.FILL:
            return round(dice.uniform(*FILLED_S), 1)
        case _:
            return 0.0
