"""What there is after the storm, as plain data: what the checker looks at, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from penstock.engine.run.workflow import Workflow

from .account import Account
from .executions import Execution, digest
from .ledger import Ledger
from .limit_story import Logged
from .said import Said
from .step_account import Seen

HIDDEN = "?"  # an output that is shown by its size only
NONE = digest(None)


class ShownStep(Struct, frozen=True):
    """`output` is its digest, HIDDEN when it is not shown. The API shows `begun` attempts, a snapshot those that were
    ordered. `items` are the elements of a map: how many there are, have completed, failed and were cancelled."""

    status: str
    attempts: int | None
    iteration: int = 0
    output: str = NONE
    begun: int | None = None
    items: tuple[int, ...] | None = None

    def agrees(self, other: ShownStep) -> bool:
        same = (self.status, self.iteration, self.items) == (other.status, other.iteration, other.items)
        counted = _same(self.attempts, other.attempts) and _same(self.begun, other.begun)
        return same and counted and (self.output == other.output or HIDDEN in (self.output, other.output))


def _same(one: int | None, other: int | None) -> bool:
    """Whether both say the same, if both say something."""
    return one == other or None in (one, other)


class ShownRun(Struct, frozen=True):
    """A run as somebody shows it: the account of its history, its snapshot, or an answer of the API. `compensation`
    says of one that has undone its steps whether that was completed."""

    status: str
    steps: Mapping[str, ShownStep]
    compensation: str | None = None

    def differences(self, other: ShownRun) -> list[str]:
        found = [] if self.status == other.status else [f"the run is {other.status}, not {self.status}"]
        if self.compensation != other.compensation:
            found.append(f"its compensation is {other.compensation}, not {self.compensation}")
        for step_id, step in self.steps.items():
            found_step = other.steps.get(step_id)
            if found_step is None or not step.agrees(found_step):
                found.append(f"step {step_id} is shown as {found_step}, not {step}")
        found += [f"step {step_id} is shown, and is not there" for step_id in other.steps.keys() - self.steps.keys()]
        return found


class History:
    """One run: its events in the order of the stream, its workflow, and what both mean."""

    def __init__(self, workflow: Workflow, seen: Sequence[Seen], run_id: str = "") -> None:
        self.workflow, self.seen, self.run_id = workflow, list(seen), run_id

    @cached_property
    def account(self) -> Account:
        account = Account(self.workflow, self.run_id)
        for seen in self.seen:
            account.take(seen)
        return account

    @cached_property
    def shown(self) -> ShownRun:
        return shown_account(self.account)

    def unlisted(self, step_id: str, listed: Sequence[ShownStep]) -> Iterator[str]:
        """What a list of a map's elements shows otherwise."""
        elements = self.account.steps[step_id].elements or []
        if len(listed) != len(elements):
            yield f"{step_id} has {len(elements)} elements, {len(listed)} are listed"
        for number, (element, found) in enumerate(zip(elements, listed, strict=False)):
            attempts = element.attempt if element.status in ("completed", "failed") else None
            wanted = ShownStep(_status(element.status), attempts, output=digest(element.output))
            if not wanted.agrees(found):
                yield f"element {step_id}.{number} is listed as {found}, not {wanted}"

    def first(self, kind: str) -> Seen | None:
        return next((seen for seen in self.seen if seen.type == kind), None)

    def count(self, kind: str) -> int:
        return sum(seen.type == kind for seen in self.seen)


class Sent(Struct, frozen=True):
    """An event in the stream of events; `at` is when the broker stored it, in s since the epoch."""

    seq: int
    at: float
    name: str
    body: Any


class Evidence(Struct):
    """`snapshots` and `folds` are the encoded states that the store has, and that the engine makes of the whole
    history.

    `shown` are runs as they are shown, by where: snapshot, `GET /runs/{id}`, the list. `dead_letters` are those as run
    and step. `items` are the elements of maps by run and step, and `children` those of runs, as the API lists them
    (None: nobody has asked). `events` is the stream of events, `unborn` are children that were cancelled before they
    began, `tasks` and `timers` the subjects of what is still queued; `logged` the service's own words that tell of a
    bug. `labelled` are the runs that the API lists by a label, by its name and value, `lines` and `chunks` what each
    run has said (None: nobody has asked). `removed` are the runs whose last event says so, with the places where
    something of them is found all the same. `imports` are the imported runs as the API exports them, `listed_imports`
    those that it lists (None: nobody has asked). `limit_log` is the stream of limits, as far as it was there
    when it was read. `failed` are answers of 500 that nothing allows. `restored`: all this is of a service out of a
    backup.
    """

    ledger: Ledger
    histories: dict[str, History]
    snapshots: dict[str, bytes] = {}
    folds: dict[str, bytes] = {}
    shown: dict[str, dict[str, ShownRun]] = {}
    items: dict[tuple[str, str], list[ShownStep]] | None = None
    children: dict[str, list[str]] | None = None
    events: Sequence[Sent] = ()
    unborn: frozenset[str] = frozenset()
    dead_letters: frozenset[tuple[str, str]] = frozenset()
    executions: Sequence[Execution] = ()
    tasks: Sequence[str] = ()
    timers: Sequence[str] = ()
    removed: dict[str, list[str]] = {}
    imports: dict[str, Any] = {}
    listed_imports: Sequence[str] | None = None
    malformed: Sequence[str] = ()
    logged: Sequence[str] = ()
    labelled: dict[tuple[str, str], list[str]] = {}
    lines: dict[str, list[Said]] | None = None
    chunks: dict[str, list[Said]] | None = None
    limit_log: Sequence[Logged] = ()
    failed: Sequence[str] = ()
    restored: bool = False


class Violation(Struct, frozen=True):
    """Something that must never be, by the name of its rule. `run_id` is there when it is about one run."""

    rule: str
    what: str
    run_id: str | None = None


def shown_account(account: Account) -> ShownRun:
    """A run as its history means it."""
    steps = {
        step_id: ShownStep(
            _status(step.status),
            _attempts(step.status, step.attempt),
            step.iteration,
            HIDDEN if step.planned and step.status == "out" else digest(step.output),
            _attempts(step.status, step.begun),
            step.counts(),
        )
        for step_id, step in account.steps.items()
    }
    undone = account.compensation
    return ShownRun(account.status, steps, None if undone is None or not undone.over else undone.outcome)


def shown_state(state: Mapping[str, Any], api: bool = False) -> ShownRun:
    """A run out of its JSON: a snapshot, or what the API answers."""
    steps = {step_id: _shown_step(step, api) for step_id, step in state["steps"].items()}
    found = state.get("compensation")
    return ShownRun(state["status"], steps, found.get("outcome") if isinstance(found, Mapping) else found)


def shown_item(item: Mapping[str, Any]) -> ShownStep:
    """An element of a map as the API lists it; of one that has not ended by itself the attempts are not compared."""
    output = HIDDEN if "output_bytes" in item else digest(item.get("output"))
    ended = item["status"] in ("completed", "failed")
    return ShownStep(_status(item["status"]), item["attempts"] if ended else None, output=output)


def _shown_step(step: Mapping[str, Any], api: bool) -> ShownStep:
    status = step.get("status", "pending")
    gathered = "parts" in step or ("items" in step and "output" not in step)  # from the history, when it is read
    hidden = "output_bytes" in step or "output_at" in step or gathered
    output = HIDDEN if hidden else digest(step.get("output"))
    count, items = _attempts(status, step.get("attempts", 0)), step.get("items")
    return ShownStep(
        _status(status),
        None if api else count,
        step.get("iteration", 0),
        output,
        count if api else None,
        None if items is None else _counts(items),
    )


def _counts(items: Mapping[str, Any]) -> tuple[int, ...]:
    """A snapshot counts them by status, the API gives each number a name."""
    if "counts" in items:
        return items["total"], *items["counts"][3:]
    return items["total"], items["completed"], items["failed"], items["cancelled"]


def _status(status: str) -> str:
    """Whether a step that is out has begun is no matter of its run's state."""
    return "running" if status in ("out", "queued") else status


def _attempts(status: str, attempts: int) -> int:
    """A step that is skipped has none, whatever came before."""
    return 0 if status == "skipped" else attempts
