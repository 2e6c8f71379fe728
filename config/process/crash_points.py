"""Crash points: places at which a test kills a process, by name. There is one between each two effects of the shell.

PENSTOCK_CRASH_POINTS is only for tests, and must be set before the process starts: it is a directory. With files
`<point>.1` to `<point>.<n>` in it, the process that passes the point as the n-th is killed by SIGKILL: each one before
removes the file with the highest number. `<point>.died` then holds the process id, and the point does nothing any
more. Without the variable, no point does anything.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias, get_args

VARIABLE = "PENSTOCK_CRASH_POINTS"

Point: TypeAlias = Literal[
    # A shard: one turn of an actor, from the delivery to its acknowledgement
    "shard.received",
    "shard.advanced",
    "planner.checked",
    "shard.command_sent",
    "shard.command_stored",
    "shard.published",
    "child.started",
    "failure_run.started",
    "task.cancelled",
    "compensation.read",
    "rerun.parts_taken",
    "rerun.step_taken",
    "pause.withdrawn",
    "shard.snapshot_written",
    "shard.left",
    "run.data_removed",
    "shard.run_removed",
    "run.snapshot_put_away",
    "run.events_put_away",
    "shard.run_put_away",
    # A wait for an event: what ends it, and how far it has seen the events
    "event_wait.found",
    "event_wait.received",
    "event_wait.checkpointed",
    # A limit: what runs ask of it, what its owner decides and notifies, and what is removed of its log
    "limits.made",
    "limit.asked",
    "limit.deciding",
    "limit.decided",
    "limit.told",
    "limit.compacting",
    "limit.compacted",
    "shard.acknowledging",
    "shard.acknowledged",
    "shard.drained",
    "shard.loaded",
    "shard.resumed",
    "shard.dead_lettering",
    "dead_letter.stored",
    "timer.due",
    "timer.fired",
    "timer.stored",
    "timer.withdrawn",
    "approval.token_stored",
    # Partitions, from one life of a shard to the next
    "member.joined",
    "handover.claimed",
    "handover.all_claimed",
    "handover.consumer_made",
    "handover.common_consumer_made",
    "handover.owned",
    "handover.withdrawn",
    "handover.released",
    "member.left",
    # The front end: between what a request has stored and its answer
    "run.started",
    "run.scheduled",
    "run.unscheduled",
    "run.cancelled",
    "run.resumed",
    "run.paused",
    "run.unpaused",
    "runs.started",
    "runs.cancelled",
    "run.rerun",
    "import.stored",
    "import.marked",
    "step.retried",
    "step.overridden",
    "runs.paused",
    "runs.removed",
    # Archiving: what is stored before anything goes, and the way back
    "archive.stored",
    "archive.marked",
    "run.brought_back",
    "rerun.planned",
    "runs.rerun",
    "signal.stored",
    "signal.reported",
    "approval.decided",
    "definition.stored",
    "definition.listed",
    "definition.unlisted",
    "webhook.stored",
    "event.claimed",
    "event.stored",
    "trigger.written",
    "trigger.source_chosen",
    "trigger.deleted",
    # Triggers, and the run index
    "trigger_event.started",
    "trigger_event.dead_letter_stored",
    "batch.event_stored",
    "batch.scheduled",
    "batch.closed",
    "batch.started",
    "batch.marked",
    "batch.removed",
    "batch.ticked",
    "cron.progressed",
    "cron.scheduled",
    "index.folded",
    "index.written",
    # The worker bridge
    "bridge.registered",
    "bridge.assigned",
    "bridge.leased",
    "bridge.begun",
    "bridge.begun_in_place",
    "bridge.answered",
    "bridge.acknowledged",
    "bridge.held_answered",
    "bridge.held_acknowledged",
    "bridge.claimed",
    "bridge.claimed_answered",
    "bridge.checkpointed",
    "bridge.paused",
    "bridge.pause_reported",
    "bridge.given_back",
    # A worker on the broker
    "worker.begun",
    "worker.start_reported",
    "worker.answered",
    "worker.acknowledged",
    "worker.checkpointed",
    "worker.paused",
    "worker.pause_reported",
    "worker.given_back",
]
POINTS: frozenset[Point] = frozenset(get_args(Point))


def _passed(point: Point) -> None:
    """No test is running."""


def _watched(directory: Path) -> Callable[[Point], None]:
    def reached(point: Point) -> None:
        for ticket in sorted(directory.glob(f"{point}.[1-9]"), reverse=True):
            with suppress(FileNotFoundError):  # another process was faster
                if not ticket.name.endswith(".1"):
                    ticket.unlink()
                    return
                died = ticket.rename(ticket.with_suffix(".died"))
                died.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


reached: Callable[[Point], None] = _watched(Path(os.environ[VARIABLE])) if VARIABLE in os.environ else _passed
"""Note that a point is passed."""
