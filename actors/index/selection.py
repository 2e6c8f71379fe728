"""Which runs are meant, and by what their numbers are grouped."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Selection(Struct, frozen=True):
    """Which runs: all conditions must hold, and None is no condition.

    `after` and `before` (RFC 3339) bound the creation, and belong to the range. `prefix` is what the ids begin with, in
    hexadecimal characters. `parent` is the run that has started them, `trigger` the trigger's name. `labels` are texts
    `key:value`. `text` is what an id begins with or what a label contains, in either case. `pattern` is
    that of the workflows which somebody may see. `imported`: only such runs, or none of them; so `paused`.
    `run_ids`: only these.
    """

    workflow: str | None = None
    statuses: frozenset[str] | None = None
    after: str | None = None
    before: str | None = None
    prefix: str | None = None
    parent: str | None = None
    trigger: str | None = None
    labels: tuple[str, ...] = ()
    text: str | None = None
    pattern: str | None = None
    imported: bool | None = None
    paused: bool | None = None
    run_ids: tuple[str, ...] | None = None

    @property
    def by_label(self) -> bool:
        """Whether it is about labels, or what is found as they are."""
        marked = self.imported is True or self.paused is True
        return bool(self.labels) or self.trigger is not None or self.text is not None or marked

    @property
    def may_take_long(self) -> bool:
        return self.by_label or self.pattern is not None or self.paused is not None


class GroupBy(Enum):
    """By what numbers of runs are grouped."""

    WORKFLOW = "workflow"
    TRIGGER = "trigger"
