"""What is known of one limit: a fold of its log."""

from __future__ import annotations

from penstock.engine.limits.names import LimitName
from penstock.engine.limits.records import Allowed, Decided, Granted
from penstock.engine.limits.waiting import WaitingLine


class LimitState:
    """One limit, owned by whoever owns its partition. `fold` changes it, and nobody else, but for `told`.

    name, allowed: None until a record has said them. `allowed` is what the newest request says, or else what the last
    decision counted; it counts where nothing is registered.
    holders: who has a slot, by holder; always empty for a rate. evicting: those of them whose runs are to be cancelled.
    waiting: who waits, in `waiting.entries` by holder.
    turn: the fair value that was served last ("": none).
    upto: the sequence up to which all asks are folded. last: the sequence of the last decision (0: none), decided_upto
    the highest `upto` of a decision, at the time of the last one (s since the epoch).
    told: the sequence of the last decision whose news all runs have; its owner raises it by `mark_told` in fold.py.
    news: the decisions after `told` that runs must get to know, with their sequences, oldest first.
    base: the first sequence that a replay needs for holders, tokens and turn.
    used_up_at: when a window last had no token left (s since the epoch). After a full decision nobody knows.
    """

    __slots__ = (
        "asked",
        "at",
        "base",
        "counted",
        "decided_upto",
        "evicting",
        "fresh",
        "grouped_at",
        "holders",
        "is_rate",
        "last",
        "missing",
        "missing_at",
        "name",
        "news",
        "released",
        "settled",
        "spent",
        "spent_total",
        "told",
        "turn",
        "upto",
        "used_up_at",
        "waiting",
        "written",
    )

    def __init__(self) -> None:
        self.name: LimitName | None = None
        self.is_rate = False
        self.asked: Allowed | None = None
        self.counted: Allowed | None = None
        self.holders: dict[str, Granted] = {}
        self.evicting: set[str] = set()
        self.waiting = WaitingLine()
        self.turn = ""

        self.upto = 0
        self.last = 0
        self.decided_upto = 0
        self.at = 0.0
        self.told = 0
        self.news: list[tuple[int, Decided]] = []
        self.base = 0

        # Requests with skip or replace that no decision has considered: holder -> (order, skip?), oldest first.
        self.fresh: dict[str, tuple[int, bool]] = {}
        # Releases that a decision which is still to come may not know: holder -> sequence, oldest first.
        self.released: dict[str, int] = {}
        # Decisions that stand for requests: the first sequence that they did not know, and their own, oldest first.
        self.written: list[tuple[int, int]] = []
        # Who was refused, or took a token, by a decision behind asks that are still to come: holder -> its sequence.
        self.settled: dict[str, int] = {}

        # Tokens: when how many were taken, their sum, when the newest group of them began, and what a bucket lacked.
        self.spent: list[tuple[float, int]] = []
        self.spent_total = 0
        self.grouped_at = 0.0
        self.missing = 0.0
        self.missing_at = 0.0
        self.used_up_at = float("-inf")

    @property
    def allowed(self) -> Allowed | None:
        return self.asked or self.counted

    @property
    def waiting_total(self) -> int:
        return len(self.waiting.entries)
