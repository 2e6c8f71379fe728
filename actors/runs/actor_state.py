"""How the run in the memory of its actor stands to its snapshot."""

from __future__ import annotations

from enum import Enum


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
