"""What the load asked for and what it was promised: written down at each answer, held against the log at the end."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Start(Struct):
    """A start by `POST /runs` with a key. `answers` are the run ids that were answered, all the same if all is well;
    none: nobody knows. `run_at` is in s since the epoch."""

    workflow: str
    answers: list[str] = field(default_factory=list)
    run_at: float | None = None


class Batch(Struct):
    """A start by `POST /runs/bulk`; `run_ids` None: nobody knows. `answers` are those that it got with a key, all the
    same if all is well."""

    size: int
    run_ids: list[str] | None = None
    answers: list[list[str]] = field(default_factory=list)


class SentEvent(Struct):
    """An event that was sent with a key; `seqs` are the sequences with which it was answered."""

    name: str
    body: Any
    seqs: list[int] = field(default_factory=list)


class CallAnswer(Struct):
    """What a caller of a workflow was answered; `run_id` is the run that the answer names."""

    run_id: str
    status: int
    body: Any = None


class Requested(Struct):
    """A request of an http step, as the server saw it: its path, two of its headers, and what it was answered."""

    path: str
    key: str
    by: str
    status: int
    body: Any


class Verdict(Struct):
    """One try to decide an approval, with the status of its answer. `doubted`: an earlier try may have been the one."""

    action: str
    status: int
    doubted: bool


class Ticks(Struct):
    """The seconds, since the epoch, for each of which the cron trigger owes a run: both ends belong to them."""

    first: int
    last: int


class Ledger(Struct):
    """Owned by the load. Cancellations, replays and so on are by run id, and only those that were answered with
    success. `events` have the sequences with which each key was answered; `sent` are those that runs wait for, by key.
    `reruns` are the new runs that were answered, by the one that they repeat."""

    starts: dict[str, Start] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    deliveries: dict[str, bool] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)
    ticks: Ticks | None = None
    sent: dict[str, SentEvent] = field(default_factory=dict)
    calls: dict[str, list[CallAnswer]] = field(default_factory=dict)
    requests: list[Requested] = field(default_factory=list)
    reruns: dict[str, list[str]] = field(default_factory=dict)
    signals: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    unscheduled: set[str] = field(default_factory=set)
    replayed: set[str] = field(default_factory=set)
    odd: list[tuple[str | None, str]] = field(default_factory=list)

    def wonder(self, run_id: str | None, what: str) -> None:
        """Note an answer that should never have been given."""
        self.odd.append((run_id, what))

    @property
    def acknowledged(self) -> dict[str, str]:
        """Every run that was promised, with the way in which."""
        single = {
            run_id: "scheduled" if start.run_at else "keyed"
            for start in self.starts.values()
            for run_id in start.answers
        }
        return {**single, **{run_id: "bulk" for batch in self.batches.values() for run_id in batch.run_ids or ()}}
