"""An event as the checker sees it, and what a history says of one execution: a step, an element of a map, a handler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field, json

DONE = ("completed", "skipped", "recovered")
ENDED = (*DONE, "failed", "cancelled")


class Seen(Struct, frozen=True):
    """An event as the stream holds it; `payload` is its JSON. `at` is when the broker stored it, in s since the
    epoch. `worker` is who wrote it, None for the engine."""

    seq: int
    at: float
    type: str
    step_id: str | None = None
    attempt: int | None = None
    iteration: int | None = None
    payload: Any = None
    worker: str | None = None


class _Wire(Struct, frozen=True):
    """An event as it stands in the log."""

    type: str
    step_id: str | None = None
    attempt_number: int | None = None
    iteration: int | None = None
    payload: Any = None
    worker_id: str | None = None
    started_at: str | None = None


_WIRE = json.Decoder(_Wire)


def wire_events(seq: int, at: float, body: bytes) -> list[Seen]:
    """An event out of its JSON in the log; of an answer that says when its worker began, the start before it. Raises
    msgspec.MsgspecError."""
    wire = _WIRE.decode(body)
    of = (wire.step_id, wire.attempt_number, wire.iteration)
    event = Seen(seq, at, wire.type, *of, wire.payload, wire.worker_id)
    return [event] if wire.started_at is None else [Seen(seq, at, "step.started", *of, None, wire.worker_id), event]


class Begun(Struct):
    """What the engine has written down as a step without a worker began: a sleep, a wait. `turns` are the events by
    which it was its turn: once more after each pause before it began. `first` is the one by which it was the first of
    its attempts'; `end` has ended it, None: its run did."""

    step_id: str
    attempt: int
    turns: tuple[Seen, ...]
    first: Seen
    facts: dict[str, Any]
    end: Seen | None = None


class StepAccount(Struct):
    """`attempt` and `iteration` are of the execution that is out, or was the last; 0: it has not been its turn. `base`
    are the attempts from before the run was resumed, `unbegun` those that nobody had begun when the run ended. `inputs`
    are what the later iterations of a loop were handed. `ordered` is the event by which it was its turn, `first_turn`
    the first such event of an attempt that began, `turns` those of this execution: it is its turn again when its run
    goes on after a pause. `engine` is what was written down when it began. `paused` says that it waits for its next
    attempt, `overridden` that somebody has completed it by hand, `taken` that it comes from the run that this one
    repeats.

    `facts` are what the engine has worked out for a step without a worker. `elements` are those of a map, `fragment`
    the steps that a planner has inserted (full ids by their own), `planned` says that its plan waits to be checked.
    `handles` is the step whose failure it follows, with error and attempts of that step in `causes`, by the handler's
    first attempt after it; `received` the sequence of the event that has completed a wait.
    """

    status: str = "pending"
    attempt: int = 0
    iteration: int = 0
    base: int = 0
    output: Any = None
    error: str = ""
    first_seq: int | None = None
    done_seq: int | None = None
    ordered: Seen | None = None
    first_turn: Seen | None = None
    waits: bool = False
    began: bool = False
    paused: bool = False
    ever_began: bool = False
    erred: bool = False
    unbegun: int = 0
    inputs: dict[int, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    engine: Begun | None = None
    elements: list[StepAccount] | None = None
    fragment: dict[str, str] | None = None
    planned: bool = False
    handles: str | None = None
    causes: dict[int, tuple[str, int]] = field(default_factory=dict)
    received: int | None = None
    turns: list[Seen] = field(default_factory=list)
    overridden: bool = False
    taken: bool = False

    @property
    def only_taken(self) -> bool:
        """Whether it is as the run had it that this one repeats, whatever this one's steps before it give back now."""
        return self.taken and self.ordered is None

    @property
    def begun(self) -> int:
        """The attempts that somebody has begun."""
        return self.attempt - self.unbegun - (self.status == "out" and not (self.began or self.waits))

    def order(self, seen: Seen) -> None:
        """It is its turn: its next attempt, and the first of new retries."""
        self.base, self.attempt = self.attempt, self.attempt + 1
        self.status, self.ordered, self.turns = "out", seen, [seen]
        self.waits = self.began = self.paused = self.ever_began = self.erred = self.planned = False
        self.facts, self.engine = {}, None

    def retry(self, seen: Seen, pause: bool) -> None:
        """The attempt has failed, and there is another one, after a pause or at once."""
        self.attempt, self.began, self.paused, self.erred, self.planned = self.attempt + 1, False, pause, True, False
        self.facts, self.ordered, self.turns = {}, None if pause else seen, [] if pause else [seen]

    def cancel(self) -> None:
        """Its run has ended, or the map that it is an element of; what has ended stays as it is."""
        self.cancel_itself()
        for element in self.elements or ():
            element.cancel()

    def cancel_itself(self) -> None:
        """As `cancel`, without its elements."""
        if self.status == "out" and not (self.ever_began or self.erred):
            self.unbegun += 1
        if self.status in ("pending", "out"):
            self.status, self.output = "cancelled", None

    def reset(self) -> None:
        """Its run goes on after a failure: what is not done begins again, but a planner whose plan is carried out goes
        on with that, and a handler waits for another failure of its step."""
        if self.status in DONE:
            return
        self.status = "out" if self.fragment is not None else "pending" if self.handles is None else "cancelled"
        for element in self.elements or ():
            element.reset()

    def result(self, wraps: bool) -> Any:
        """What an element is in the output of its map, which may go on when some have failed."""
        if not wraps:
            return self.output
        if self.status == "completed":
            return {"ok": True, "output": self.output}
        return {"ok": False, "error": self.error}

    def counts(self) -> tuple[int, ...] | None:
        """How many elements there are, and how many have completed, failed, and were cancelled."""
        if self.elements is None:
            return None
        found = [element.status for element in self.elements]
        return len(found), *(found.count(status) for status in ("completed", "failed", "cancelled"))


def numbered(step_id: str, step: StepAccount) -> Iterator[tuple[str, StepAccount]]:
    """The elements of a map by their ids."""
    return ((f"{step_id}.{number}", element) for number, element in enumerate(step.elements or ()))
