"""The JSON bodies of requests, and the filter of requests for many runs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct, UnsetType


class RunStart(Struct, frozen=True):
    workflow: str
    input: Raw | UnsetType = UNSET
    run_at: str | UnsetType = UNSET
    version: str | UnsetType = UNSET


class BulkStart(Struct, frozen=True):
    workflow_id: str
    inputs: Sequence[Raw]
    version: str | UnsetType = UNSET


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
    """A filter for the runs of a workflow: `after` and `before` (RFC 3339) bound their creation.

    Without `limit`, at most 1,000 may match; with it, the newest so many beyond `cursor` are taken, which is `next` of
    the previous response. With `dry_run`, the response says what would be done, and nothing is done.
    """

    workflow_id: str
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None


class ToCancel(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`status` is running, pending or all; None is all. With `compensate` the runs undo their steps first."""

    status: str | None = None
    compensate: bool = False


class ToRetry(RunSelection, frozen=True, omit_defaults=True, kw_only=True):
    """`mode` is rerun or replay; with `once`, what was rerun already is skipped."""

    mode: str
    once: bool = False
