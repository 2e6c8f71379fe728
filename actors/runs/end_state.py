"""The state of a run in the message of its end: a short run that has completed needs no snapshot beside it.

Whoever reads the last event of such a run has all of it: the snapshot at the event before, and this one to fold on top.
Its owner need not even read that: it knows what it has stored, and that nothing came before it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeGuard

from msgspec.structs import replace

from penstock.actors.runs.shared.answers import is_stored, sent
from penstock.broker.names import owner_state
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.nats.pull import Delivery
from penstock.broker.streams.history import History
from penstock.engine.errors import Conflict
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import AppendEvent, Command
from penstock.engine.run.events import Record, WorkflowCompleted
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.run.workflow import Workflow

STATE_BYTES_MAX = 3000  # of a header


class Completion(Protocol):
    """An AppendEvent of such an event."""

    @property
    def event(self) -> WorkflowCompleted: ...


def is_completion(command: Command) -> TypeGuard[Completion]:
    """Whether this command ends the run, and has all of the event."""
    return isinstance(command, AppendEvent) and isinstance(command.event, WorkflowCompleted)


class OwnEnd(NamedTuple):
    """The end of a run that its owner has stored behind all that it has folded, and the run after it."""

    event: WorkflowCompleted
    run: Run


class _Carried(NamedTuple):
    """A state, as one line of text, and the run after the end that carries it; its sequence is not known yet."""

    state: str
    after: Run


async def complete(history: History, workflow: Workflow, run: Run, event: WorkflowCompleted) -> OwnEnd | None:
    """Store the end of a run for which everything else is stored, with the run's state if it can have that. Returns the
    end if it carries the state. Raises TooLarge, ApiError."""
    if event.payload.resumes != run.resumes:  # `advance` refuses it: readers must not trust it
        await is_stored(sent(history.send(event)))
        return None
    carried = _carried(workflow, run, event, history)
    if carried is not None:
        try:
            answer = await is_stored(sent(history.send_end(event, run.seq, state=carried.state)))
        except Conflict:  # something was stored since: perhaps this very event, whose answer got lost
            pass
        else:
            return OwnEnd(event, replace(carried.after, seq=ack_seq(answer)))
    await is_stored(sent(history.send_end(event, run.seq)))
    return None


def _carried(workflow: Workflow, run: Run, event: WorkflowCompleted, history: History) -> _Carried | None:
    """What the end shall carry; None where the run needs a snapshot.

    That is so where the end orders something, which may have to be done again, where the history does not last, and
    for a state that is large, or that may not stand in a header.
    """
    if not history.keeps_all:
        return None
    body = to_snapshot(run)
    if len(body) > STATE_BYTES_MAX or not body.isascii() or b"\n" in body or b"\r" in body:
        return None
    after, following = advance(workflow, run, Record(run.seq + 1, 0.0, event))
    return _Carried(body.decode(), after) if after is not None and after.ended and not following else None


def carries_state(run: Run, last: Delivery) -> bool:
    """Whether this event, the last that the run has folded, is an end with its state: then no snapshot is written."""
    return run.seq == last.seq and run.ended and owner_state(last.headers) is not None
