"""The bodies of responses about pauses, retries and reruns, and about what was done to one step by hand. As views.py of
the client says."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from penstock.client.views import SkippedRun


class PausedRun(Struct, frozen=True, omit_defaults=True):
    """`status` is as it was; `paused_at` is left out of a run that is not paused any more."""

    run_id: str
    status: str
    paused_at: str | None = None


class RetriedRun(Struct, frozen=True, omit_defaults=True):
    """`new_run_id` is present when a new run was started."""

    original_run_id: str
    new_run_id: str | None = None


class BulkRetried(Struct, frozen=True):
    """As BulkCancelled."""

    retried: list[RetriedRun]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class RepeatedRun(Struct, frozen=True):
    """`run_id` is the new run."""

    run_id: str
    rerun_of: str


class BulkPaused(Struct, frozen=True):
    """As BulkCancelled."""

    paused: list[str]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class BulkResumed(Struct, frozen=True):
    """As BulkCancelled; a run that is not paused is skipped."""

    resumed: list[str]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class BulkPruned(Struct, frozen=True):
    """As BulkCancelled. `total` counts the runs in both lists: those that ended too late are in none."""

    pruned: list[str]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class BulkRerun(Struct, frozen=True):
    """As BulkCancelled."""

    rerun: list[RetriedRun]
    skipped: list[SkippedRun]
    total: int
    dry_run: bool
    next: str | UnsetType = UNSET
    remaining: int | UnsetType = UNSET


class RetriedStep(Struct, frozen=True, omit_defaults=True):
    """`resumed`: the failed run goes on at the step; else `attempt` is the number of the attempt that begins now."""

    run_id: str
    step_id: str
    resumed: bool
    attempt: int | None = None


class OverriddenStep(Struct, frozen=True):
    """`status` is completed; of a handler, that of its step: recovered."""

    run_id: str
    step_id: str
    status: str
