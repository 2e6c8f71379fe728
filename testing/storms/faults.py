"""The faults of a seed. They are drawn for each delivery of a task, from the seed, the step and the delivery's number:
to take one away changes no other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum
from random import Random

from msgspec import Struct

from penstock.engine.definition.durations import text
from penstock.engine.run.event_payloads import Failure
from penstock.testing.memory.script import DelayTask, FailTask, LoseTask, RepeatTask, S, Script

FAULTS_MAX = 5  # of a seed: a run that nothing goes right for says nothing about a workflow
CHANCE = 0.15  # of each delivery
LATENCY_S = (0.001, 0.2)
LATE_S = (1.0, 7200.0)
ERROR = "a fault of the storm"


class FaultKind(StrEnum):
    """What goes wrong."""

    FAIL = "fail"
    LOSE = "lose"
    LOSE_AFTER_CALL = "lose_after_call"
    LATE = "late"
    TWICE = "twice"
    PAUSE = "pause"
    CANCEL = "cancel"


OF_TASKS = (FaultKind.FAIL, FaultKind.LOSE, FaultKind.LOSE_AFTER_CALL, FaultKind.LATE, FaultKind.TWICE)
_SAID = {
    FaultKind.FAIL: "fails before the function is called",
    FaultKind.LOSE: "is lost with its worker before the function is called",
    FaultKind.LOSE_AFTER_CALL: "is lost with its worker after the function was called",
    FaultKind.LATE: "reports its outcome late",
    FaultKind.TWICE: "is carried out once more after its outcome",
}


class Fault(Struct, frozen=True):
    """Something that goes wrong: for a delivery of a step's task (1: the first), or for the run (no step). `after_s` is
    how late it is, or when the run is paused or cancelled; `for_s` how long it is paused."""

    kind: FaultKind
    step: str | None = None
    delivery: int = 0
    after_s: float = 0.0
    for_s: float = 0.0

    def __str__(self) -> str:
        if self.step is not None:
            late = f" ({text(self.after_s)})" if self.after_s else ""
            return f"delivery {self.delivery} of step {self.step!r} {_SAID[self.kind]}{late}"
        if self.kind is FaultKind.PAUSE:
            return f"the run is paused after {text(self.after_s)}, for {text(self.for_s)}"
        return f"the run is cancelled after {text(self.after_s)}"


class Faults(Script):
    """The script of a service in a storm. What its test has said comes first. `happened` are the faults so far."""

    def __init__(self, seed: int, kinds: Collection[FaultKind], only: Collection[Fault] | None = None) -> None:
        """Seeds are 0 and more. With `only`, none but these faults happen."""
        super().__init__()
        self._seed, self._kinds = seed, [kind for kind in OF_TASKS if kind in kinds]
        self._only = None if only is None else {(one.step, one.delivery): one for one in only if one.step is not None}
        self._deliveries = Counter[str]()
        self._delays: dict[str, float] = {}
        self._twice: dict[str, float] = {}
        self.happened: list[Fault] = []

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong, and people approve at once."""
        return self._seed < 0

    def random(self, *about: object) -> Random:
        """For one purpose: what is drawn from it changes nothing else."""
        return Random(f"{self._seed} {about}")  # noqa: S311 - nothing is kept secret by it

    def take(self, names: Sequence[str], kinds: tuple[type[S], ...]) -> S | None:
        """As of any script; where nothing was said, what the storm does to the delivery."""
        step, said = names[0], super().take(names, kinds)
        drawn: Struct | None = None
        if FailTask in kinds:
            drawn = self._begin(step, scripted=said is not None)
        elif DelayTask in kinds and step in self._delays:
            drawn = DelayTask(self._delays.pop(step))
        elif RepeatTask in kinds and step in self._twice:
            drawn = RepeatTask(self._twice.pop(step))
        return said if said is not None or not isinstance(drawn, kinds) else drawn

    def _begin(self, step: str, *, scripted: bool) -> Struct | None:
        """A task of the step is delivered; `scripted`: its test has said what becomes of it."""
        self._deliveries[step] += 1
        delivery = self._deliveries[step]
        draw = self.random(step, delivery)
        if not self.is_calm:
            self._delays[step] = round(draw.uniform(*LATENCY_S), 3)
        fault = self._drawn(draw, step, delivery) if self._only is None else self._only.get((step, delivery))
        if fault is None or scripted:
            return None
        self.happened.append(fault)
        match fault.kind:
            case FaultKind.FAIL:
                return FailTask(Failure(ERROR))
            case FaultKind.LOSE | FaultKind.LOSE_AFTER_CALL:
                return LoseTask(after_call=fault.kind is FaultKind.LOSE_AFTER_CALL)
            case FaultKind.LATE:
                self._delays[step] = self._delays.get(step, 0.0) + fault.after_s
            case _:
                self._twice[step] = fault.after_s
        return None

    def _drawn(self, draw: Random, step: str, delivery: int) -> Fault | None:
        if draw.random() > CHANCE or len(self.happened) >= FAULTS_MAX or not self._kinds:
            return None
        kind = draw.choice(self._kinds)
        return Fault(kind, step, delivery, late(draw) if kind in (FaultKind.LATE, FaultKind.TWICE) else 0.0)


def late(draw: Random) -> float:
    """So many seconds: as often between 1 s and 10 s as between 10 min and 100 min."""
    first, last = LATE_S
    return round(math.exp(draw.uniform(math.log(first), math.log(last))), 1)
