"""The bodies of responses about limits. As views.py of the client says."""

from __future__ import annotations

from msgspec import Struct


class RateView(Struct, frozen=True, omit_defaults=True):
    """`limit` in each span of `per` (duration text); with `burst` by a bucket of so many tokens."""

    limit: int
    per: str
    burst: int | None = None


class LimitHolderView(Struct, frozen=True, omit_defaults=True):
    """Who has a slot, and since when; without `step_id` the run as a whole."""

    run_id: str
    since: str
    step_id: str | None = None


class LimitWaiterView(Struct, frozen=True, omit_defaults=True):
    """Who waits; `place` 1 is served next. `reason` as in an explanation: concurrency or rate_limit."""

    run_id: str
    place: int
    reason: str
    priority: int
    step_id: str | None = None


class LimitKeyView(Struct, frozen=True):
    """A key of the scope that is in use."""

    key: str
    holders_total: int
    waiting_total: int


class LimitOverrideView(Struct, frozen=True, omit_defaults=True):
    """What counts instead of what is registered, who has set it, and when; without `key` for all keys."""

    limit: int
    at: str
    rate_limit: RateView | None = None
    by: str | None = None
    key: str | None = None


class LimitRegisteredView(Struct, frozen=True, omit_defaults=True):
    """What a definition says: the newest one counts unless it is overridden."""

    workflow: str
    version: str
    limit: int
    at: str
    rate_limit: RateView | None = None
    step_id: str | None = None


class LimitView(Struct, frozen=True, omit_defaults=True):
    """One limit: its scope, its kind (runs, executions or rate), its key, and how much it allows now.

    `holders` are the oldest ones first, `waiting` as they are served; `holders_total` and `waiting_total` say how many
    there are. A rate has no holders, but `tokens`: so many may begin now, and at `next_at` the next one of those that
    wait. `keys` are the busiest ones, where no key was asked for. `registered` is the newest first.
    """

    scope: str
    kind: str
    limit: int
    holders: list[LimitHolderView]
    holders_total: int
    waiting: list[LimitWaiterView]
    waiting_total: int
    key: str | None = None
    rate_limit: RateView | None = None
    tokens: float | None = None
    next_at: str | None = None
    keys: list[LimitKeyView] = []
    registered: list[LimitRegisteredView] = []
    override: LimitOverrideView | None = None
