"""What executions have said while they ran: lines of the log, chunks of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .step_account import Seen

if TYPE_CHECKING:
    from .evidence import Evidence, History

DROPPED = "dropped"
ENDS = ("workflow.completed", "workflow.failed", "workflow.cancelled", "workflow.compensating")


class Said(Struct, frozen=True):
    """A line or a chunk of one attempt: the `number`th that `by` has said; without them, so many were `dropped`."""

    step_id: str
    attempt: int
    by: str = ""
    number: int = 0
    dropped: bool = False


def line_of(line: Mapping[str, Any]) -> Said:
    """A line as the API shows it."""
    by, _, number = line["text"].rpartition(" ")
    said = by.isalnum() and number.isdecimal()
    where = line["step_id"], line.get("attempt") or 1
    return Said(*where, by, int(number)) if said else Said(*where, dropped=DROPPED in line["text"])


def chunks_of(step_id: str, message: Mapping[str, Any]) -> Iterator[Said]:
    """The chunks of a stored message."""
    attempt = message.get("attempt") or 1
    if message.get(DROPPED):
        yield Said(step_id, attempt, dropped=True)
    for by, number in message.get("chunks", ()):
        yield Said(step_id, attempt, by, number)


def said_by(seen: Seen) -> tuple[str, int] | None:
    """Who says with its output how much it has said before it."""
    output = seen.payload
    counts = seen.type == "step.completed" and seen.worker is not None and isinstance(output, dict)
    return (output["by"], output["said"]) if counts and "said" in output else None


class _Attempts:
    """Those of a run that have begun, and those that were given up before their worker has answered."""

    def __init__(self) -> None:
        self._begun, self._given_up = set[tuple[str, int]](), set[tuple[str, int]]()
        self._over = False

    def take(self, seen: Seen) -> None:
        """One event more, in the order of the stream."""
        if seen.type == "step.started":
            self._begun.add((seen.step_id or "", seen.attempt or 1))
        elif seen.type in ENDS:
            self._over = seen.type != "workflow.compensating"
            self._given_up |= self._begun
        elif seen.type == "workflow.resumed":
            self._over = False
        elif seen.type == "step.overridden":
            self._given_up |= {one for one in self._begun if f"{one[0]}.".startswith(f"{seen.step_id}.")}
        elif seen.type == "timer.fired":
            self._out_of_time(seen.payload["timer"], seen.payload.get("attempt") or 1)

    def is_given_up(self, seen: Seen) -> bool:
        return self._over or (seen.step_id or "", seen.attempt or 1) in self._given_up

    def _out_of_time(self, timer: str, attempt: int) -> None:
        kind, _, rest = timer.partition(".")
        step_id = rest.partition("~")[0].partition("+")[0]
        if kind == "timeout":
            self._given_up.add((step_id, attempt))
        elif kind.partition("+")[0] == "workflow":
            self._given_up |= self._begun
        elif kind == "loop":
            self._given_up |= {one for one in self._begun if one[0] == step_id}


def all_said_is_kept(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The problems, by run: who has completed has all that it had said stored before, in its order; what was dropped is
    mentioned. What is said of an attempt that was given up is refused."""
    for run_id, history in evidence.histories.items():
        attempts = _Attempts()
        for seen in () if _may_be_removed(evidence, history) else history.seen:
            attempts.take(seen)
            if attempts.is_given_up(seen):
                continue
            if (wanted := said_by(seen)) is not None and evidence.lines is not None and evidence.chunks is not None:
                for what, kept in (("lines", evidence.lines), ("chunks", evidence.chunks)):
                    if problem := _missing(kept.get(run_id, ()), seen, *wanted):
                        yield run_id, f"of the {wanted[1]} {what} of {seen.step_id} ({seen.seq}) {problem}"


def _may_be_removed(evidence: Evidence, history: History) -> bool:
    """A run that was removed while the backup was made may be in it, without what it has said."""
    value = history.account.input
    pruning = evidence.ledger.prunings.get(value.get("prune", "")) if isinstance(value, dict) else None
    return evidence.restored and pruning is not None and pruning.asked


def _missing(kept: Sequence[Said], seen: Seen, by: str, count: int) -> str | None:
    """A message of which it was not known that it is stored may be there twice."""
    ours = [one for one in kept if (one.step_id, one.attempt) == (seen.step_id, seen.attempt or 1)]
    found = [*dict.fromkeys(one.number for one in ours if one.by == by)]
    if found != sorted(found):
        return f"the order is {found}"
    if found != [*range(count)] and not any(one.dropped for one in ours):
        return f"there are {found}, and no word of dropped ones"
    return None
