"""Whether a run needs a snapshot: a short one is read from its history as soon, and most end before it would pay."""

from __future__ import annotations

from penstock.config.limits import KIB
from penstock.engine.run.state import Run

EVENTS_MIN = 20  # beyond the last snapshot: about as much work to fold as a snapshot is to write and to keep
BYTES_MIN = 64 * KIB


def needs_snapshot(run: Run, events: int, size: int, *, lasting: bool) -> bool:
    """Whether the state of the run is worth a snapshot, with so many events and bytes in the log since the last one.

    It always is where the history does not last, and of a run that has ended: pruning takes the snapshot for the proof
    that its owner has finished. So is one that is bound to a worker or has slots: who looks through all such runs
    reads their snapshots.
    """
    if run.ended or not lasting or run.bound is not None or run.slots:
        return True
    return events >= EVENTS_MIN or size >= BYTES_MIN
