"""How the run in the memory of its actor stands to its snapshot, and whether it needs one: a short run is read from its
history as soon, and most end before a snapshot would pay."""

from __future__ import annotations

from enum import Enum

from penstock.config.limits import KIB
from penstock.engine.run.state import Run

EVENTS_MIN = 20  # beyond the last snapshot: about as much work to fold as a snapshot is to write and to keep
BYTES_MIN = 64 * KIB


class ActorState(Enum):
    """How the run in memory stands to its snapshot. SAVE_DUE and RELOAD_DUE need a turn, even if no event waits."""

    SAVED = "saved"
    """The snapshot is as new as the state in memory, or nothing is in memory."""
    IN_LOG = "in_log"
    """The state is ahead of its snapshot, and needs none: it is folded from the log by whoever reads the run."""
    UNSAVED = "unsaved"
    """The state is ahead of its snapshot. The run is in the shard's snapshot queue."""
    SAVE_DUE = "save_due"
    """The next turn writes the snapshot."""
    RELOAD_DUE = "reload_due"
    """After an error the state was dropped. The next turn reads the run again, and saves it."""


SAVED, IN_LOG, UNSAVED, SAVE_DUE, RELOAD_DUE = ActorState
NOT_DUE = (SAVED, IN_LOG)
TURN_DUE = (SAVE_DUE, RELOAD_DUE)


def needs_snapshot(run: Run, events: int, size: int, *, lasting: bool) -> bool:
    """Whether the state of the run is worth a snapshot, with so many events and bytes in the log since the last one.

    It always is where the history does not last, and of a run that has ended: pruning takes the snapshot for the proof
    that its owner has finished. So is one that is bound to a worker or has slots: who looks through all such runs
    reads their snapshots.
    """
    if run.ended or not lasting or run.bound is not None or run.slots:
        return True
    return events >= EVENTS_MIN or size >= BYTES_MIN
