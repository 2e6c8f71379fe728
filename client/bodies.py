"""The JSON bodies of requests, and the filter of requests for many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Raw, Struct, UnsetType, field


class RunStart(Struct, frozen=True):
    workflow: str
    input: Raw | UnsetType = UNSET
    run_at: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    labels: Mapping[str, str] | UnsetType = UNSET


class BulkStart(Struct, frozen=True):
    workflow_id: str
    inputs: Sequence[Raw]
    version: str | UnsetType = UNSET
    labels: Mapping[str, str] | UnsetType = UNSET
    run_labels: Sequence[Mapping[str, str] | None] | UnsetType = UNSET


class RunCancellation(Struct, frozen=True, omit_defaults=True):
    reason: str | None = None
    compensate: bool = False


class TokenDecision(Struct, frozen=True, omit_defaults=True):
    """Beside the action and the token, which are in the query."""

    comment: str | None = None
    approved_by: str | None = None


class OperatorDecision(Struct, frozen=True, omit_defaults=True):
    """`action` is approve or reject."""

    action: str
    comment: str | None = None
    approved_by: str | None = None


class RetryOptions(Struct, frozen=True, omit_defaults=True):
    mode: str
    once: bool = False


class RunSelection(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A filter for runs, of one workflow or (None) of all: `after` and `before` (RFC 3339) bound their creation,
    `labels` are those that a run must have, `trigger` or a step of `parent` has started it, `q` is what its id begins
    with or a label contains, `run_ids` are the only ones. At least one condition is needed. Runs are started again of
    one workflow only.

    Without `limit`, at most 1,000 may match; with it, the newest so many beyond `cursor` are taken, which is `next` of
    the previous response. With `dry_run`, the response says what would be done, and nothing is done.
    """

    workflow_id: str | None = None
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None
    labels: Mapping[str, str] | None = None
    trigger: str | None = None
    parent: str | None = None
    q: str | None = None
    run_ids: Sequence[str] | None = None


class ToCancel(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`status` is running, pending or all; None is all. `paused`: only runs that are paused, or (False) that are not.
    With `compensate` the runs undo their steps first."""

    status: str | None = None
    compensate: bool = False
    paused: bool | None = None


class ToPause(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`status` is running, pending or all; None is all. `paused`: only runs that are paused, or (False) that are not.
    With `children` the runs that their steps wait for, too."""

    status: str | None = None
    children: bool = False
    paused: bool | None = None


class ToRetry(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`mode` is rerun or replay; with `once`, what was rerun already is skipped."""

    mode: str
    once: bool = False


class ToPrune(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """As RunSelection, of runs that have ended. `status` is completed, failed, cancelled or all. At least one condition
    is needed; `ended_before` (RFC 3339) is one."""

    workflow_id: str | None = None
    status: str | None = None
    after: str | None = None
    before: str | None = None
    ended_before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None
    labels: Mapping[str, str] | None = None


class KeyCreation(Struct, frozen=True):
    name: str
    scope: str
    workflow: str | UnsetType = UNSET
    expires: str | UnsetType = UNSET


class RerunOptions(Struct, frozen=True, omit_defaults=True):
    """`from` is the step to begin at, `outputs` replaces what is taken over, by step."""

    from_: str | None = field(default=None, name="from")
    input: Raw | UnsetType = UNSET
    outputs: dict[str, Raw] = {}
    latest: bool = False
    labels: dict[str, str] | None = None


class ToRerun(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`status` is failed (None, too), completed, cancelled or all; with `once`, what was rerun already is skipped.
    `from_step` is the step to begin at, `latest` takes the newest definition."""

    status: str | None = None
    once: bool = False
    from_step: str | None = field(default=None, name="from")
    latest: bool = False


class StepOutput(Struct, frozen=True):
    output: Raw
