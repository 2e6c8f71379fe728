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
    labels: dict[str, str] = field(default_factory=dict)


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


class ByHand(Struct):
    """A step was to be completed by hand with this output; `done`: that was answered with success."""

    run_id: str
    step_id: str
    output: Any
    done: bool = False


class Rerun(Struct):
    """An ended run was to be repeated, with a key: all of it, or what begins at a step. `outputs` were given for those
    of the run. `answers` are the new runs that were answered, all the same if all is well."""

    first: str
    from_step: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)


class Selected(Struct):
    """The runs that were answered to have been paused, or to go on, of one workflow and with these labels."""

    workflow: str
    labels: dict[str, str]
    run_ids: list[str]


class Pruning(Struct):
    """Runs that were started to be removed, in one bulk with a key, and what became of that. `run_ids` None: nobody
    knows whether they have started. `asked`: their removal was asked for, so each may be gone. `pruned` are those that
    were answered to be removed, `skipped` those that were answered to stay, by the last answer. `doubted`: a try had no
    answer that counts."""

    size: int
    run_ids: list[str] | None = None
    asked: bool = False
    pruned: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    doubted: bool = False


class Import(Struct):
    """A run that was to be imported, as often as `asked`, with this document, whose run id is new. `stored`: one of the
    answers was success; `refused` of them said that there is one. `doubted`: a try had no answer that counts."""

    document: dict[str, Any]
    asked: int = 0
    stored: bool = False
    refused: int = 0
    doubted: bool = False


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
    `reruns` are the new runs that were answered, by the one that they repeat, `keyed_reruns` those that were asked for
    with a key. `begun_now` are run, step and attempt whose wait was ended. `prunings` are by the label of their
    runs, `imports` by their ids."""

    starts: dict[str, Start] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    deliveries: dict[str, bool] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)
    ticks: Ticks | None = None
    sent: dict[str, SentEvent] = field(default_factory=dict)
    calls: dict[str, list[CallAnswer]] = field(default_factory=dict)
    requests: list[Requested] = field(default_factory=list)
    reruns: dict[str, list[str]] = field(default_factory=dict)
    keyed_reruns: dict[str, Rerun] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    resumed: set[str] = field(default_factory=set)
    selected: list[Selected] = field(default_factory=list)
    by_hand: list[ByHand] = field(default_factory=list)
    begun_now: list[tuple[str, str, int]] = field(default_factory=list)
    prunings: dict[str, Pruning] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
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
