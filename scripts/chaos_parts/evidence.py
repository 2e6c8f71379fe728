"""What there is after the storm, as plain data: what the checker looks at, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from penstock.engine.run.workflow import Workflow

from .account import Account, Seen
from .executions import Execution, digest
from .ledger import Ledger

HIDDEN = "?"  # an output that is shown by its size only
NONE = digest(None)


class ToldStep(Struct, frozen=True):
    """`output` is its digest, HIDDEN when it is not shown. The API tells `begun` attempts, a snapshot those that were
    ordered."""

    status: str
    attempts: int | None
    iteration: int = 0
    output: str = NONE
    begun: int | None = None

    def agrees(self, other: ToldStep) -> bool:
        same = (self.status, self.iteration) == (other.status, other.iteration)
        counted = _same(self.attempts, other.attempts) and _same(self.begun, other.begun)
        return same and counted and (self.output == other.output or HIDDEN in (self.output, other.output))


def _same(one: int | None, other: int | None) -> bool:
    """Whether both say the same, if both say something."""
    return one == other or None in (one, other)


class Told(Struct, frozen=True):
    """A run as somebody tells it: the account of its history, its snapshot, or an answer of the API."""

    status: str
    steps: Mapping[str, ToldStep]

    def differences(self, other: Told) -> list[str]:
        found = [] if self.status == other.status else [f"the run is {other.status}, not {self.status}"]
        for step_id, step in self.steps.items():
            told = other.steps.get(step_id)
            if told is None or not step.agrees(told):
                found.append(f"step {step_id} is told as {told}, not {step}")
        return found


class History:
    """One run: its events in the order of the stream, its workflow, and what both mean."""

    def __init__(self, workflow: Workflow, seen: Sequence[Seen]) -> None:
        self.workflow, self.seen = workflow, list(seen)

    @cached_property
    def account(self) -> Account:
        account = Account(self.workflow)
        for seen in self.seen:
            account.take(seen)
        return account

    @cached_property
    def told(self) -> Told:
        return told_account(self.account)

    def first(self, kind: str) -> Seen | None:
        return next((seen for seen in self.seen if seen.type == kind), None)

    def count(self, kind: str) -> int:
        return sum(seen.type == kind for seen in self.seen)


class Evidence(Struct):
    """`snapshots` and `folds` are the encoded states that the store has, and that the engine makes of the whole
    history.

    `told` are ways in which runs are told, by where: snapshot, `GET /runs/{id}`, the list. `letters` are dead letters
    as run and step, `tasks` and `timers` the subjects of what is still queued; `logged` the service's own words that
    tell of a bug.
    """

    ledger: Ledger
    histories: dict[str, History]
    snapshots: dict[str, bytes] = {}
    folds: dict[str, bytes] = {}
    told: dict[str, dict[str, Told]] = {}
    letters: frozenset[tuple[str, str]] = frozenset()
    executions: Sequence[Execution] = ()
    tasks: Sequence[str] = ()
    timers: Sequence[str] = ()
    malformed: Sequence[str] = ()
    logged: Sequence[str] = ()


class Violation(Struct, frozen=True):
    """Something that must never be, by the name of its rule. `run_id` is there when it is about one run."""

    rule: str
    what: str
    run_id: str | None = None


def told_account(account: Account) -> Told:
    """A run as its history means it."""
    steps = {
        step_id: ToldStep(
            _status(step.status),
            _attempts(step.status, step.attempt),
            step.iteration,
            digest(step.output),
            _attempts(step.status, step.begun),
        )
        for step_id, step in account.steps.items()
    }
    return Told(account.status, steps)


def told_state(state: Mapping[str, Any], api: bool = False) -> Told:
    """A run out of its JSON: a snapshot, or what the API answers."""
    steps = {step_id: _told_step(step, api) for step_id, step in state["steps"].items()}
    return Told(state["status"], steps)


def _told_step(step: Mapping[str, Any], api: bool) -> ToldStep:
    status = step.get("status", "pending")
    hidden = "output_bytes" in step or "output_at" in step
    output = HIDDEN if hidden else digest(step.get("output"))
    count = _attempts(status, step.get("attempts", 0))
    return ToldStep(_status(status), None if api else count, step.get("iteration", 0), output, count if api else None)


def _status(status: str) -> str:
    """Whether a step that is out has begun is no matter of its run's state."""
    return "running" if status in ("out", "queued") else status


def _attempts(status: str, attempts: int) -> int:
    """A step that is skipped has none, whatever came before."""
    return 0 if status == "skipped" else attempts
