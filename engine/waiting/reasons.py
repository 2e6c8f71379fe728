"""The reasons for which a run, or a step of it, does not go on; and one such reason with its sentence."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

Detail: TypeAlias = str | int | float


class Reason(StrEnum):
    """What a run waits for. The values are words of the API."""

    PAUSED = "paused"
    STORAGE_FULL = "storage_full"
    PARTITION_UNOWNED = "partition_unowned"
    ENGINE_BEHIND = "engine_behind"
    DELAYED_START = "delayed_start"
    NO_WORKER = "no_worker"
    WORKER_GROUP_EMPTY = "worker_group_empty"
    STICKY_WORKER_GONE = "sticky_worker_gone"
    WORKERS_BUSY = "workers_busy"
    QUEUED_BEHIND = "queued_behind"
    WORKER_SILENT = "worker_silent"
    RETRY_DELAY = "retry_delay"
    SLEEPING = "sleeping"
    WAITING_EVENT = "waiting_event"
    WAITING_APPROVAL = "waiting_approval"
    WAITING_CHILD = "waiting_child"
    CONCURRENCY = "concurrency"
    RATE_LIMIT = "rate_limit"


# These end by themselves, or by what the run itself waits for: nobody has to act.
_PASSING = frozenset(
    {
        Reason.DELAYED_START,
        Reason.WORKERS_BUSY,
        Reason.QUEUED_BEHIND,
        Reason.RETRY_DELAY,
        Reason.SLEEPING,
        Reason.WAITING_EVENT,
        Reason.WAITING_CHILD,
        Reason.CONCURRENCY,
        Reason.RATE_LIMIT,
    }
)


class WaitingReason(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One reason: of the step `step_id`, or of the whole run. `text` is a sentence for people that says what can be
    done. `since` and `until` are RFC 3339; `until` is when it ends by itself at the latest. `details` depends on the
    reason. `wants_somebody`: somebody has to act, or should look; it is no wait that is meant to be. It follows from
    the reason, whatever is given."""

    step_id: str | None = None
    reason: Reason
    since: str
    text: str
    until: str | None = None
    details: dict[str, Detail]
    wants_somebody: bool = False

    def __post_init__(self) -> None:
        aside = self.reason is Reason.PAUSED and self.step_id is not None
        force_setattr(self, "wants_somebody", not aside and self.reason not in _PASSING)
