"""A limit with its log: asks are appended, the owner decides, and what is known of it is compared with a replay."""

from __future__ import annotations

from typing import Any

from penstock.engine.limits.allot import allot
from penstock.engine.limits.fold import fold
from penstock.engine.limits.names import LimitKind, LimitName, OnLimit
from penstock.engine.limits.records import Allowed, Decided, LimitRecord, Released, Requested, decode, encode
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import HOLDER, POSITION

ALLOWED = Allowed(1)


class LimitLog:
    """The stored log of one limit, and its owner, who has folded all of it."""

    def __init__(self, allowed: Allowed = ALLOWED, kind: LimitKind = LimitKind.RUNS) -> None:
        self.name = LimitName(kind, "scope")
        self.allowed = allowed
        self.records: list[tuple[int, bytes]] = []
        self.owner = LimitState()
        self.now = 1_800_000_000.0

    def append(self, record: LimitRecord) -> int:
        """Its sequence. The owner does not fold it."""
        seq = self.records[-1][0] + 1 if self.records else 1
        self.records.append((seq, encode(record)))
        return seq

    def store(self, record: LimitRecord) -> int:
        """Append it, and let the owner fold it."""
        seq = self.append(record)
        fold(self.owner, record, seq)
        return seq

    def fold_late(self, seq: int, record: LimitRecord) -> None:
        """The owner gets to know what was stored while its decision was."""
        fold(self.owner, record, seq)

    def asks(
        self, *holders: str, on_limit: OnLimit = OnLimit.QUEUE, fair: str | None = None, priority: int = 0
    ) -> None:
        """Each of them requests a slot."""
        for holder in holders:
            self.store(self.request(holder, on_limit=on_limit, fair=fair, priority=priority))

    def request(self, holder: str, **fields: Any) -> Requested:
        run_id = holder.partition(".")[0]
        return Requested(name=self.name, holder=holder, run_id=run_id, allowed=self.allowed, **fields)

    def releases(self, *holders: str) -> None:
        for holder in holders:
            self.store(Released(holder=holder))

    def decides(self, allowed: Allowed | None = None) -> list[str]:
        """Who is granted a slot in one turn, in order."""
        decided = self.turn(allowed)
        return [granted.holder for granted in decided.granted] if decided else []

    def turn(self, allowed: Allowed | None = None) -> Decided | None:
        """One turn of the owner: what it decided is stored and folded."""
        decided = allot(self.owner, allowed or self.allowed, self.now)
        if decided is not None:
            self.store(decided)
        return decided

    def replayed(self, since: int = 0) -> LimitState:
        """What somebody else knows who reads the log from the sequence `since`."""
        state = LimitState()
        for seq, body in self.records:
            if seq >= since:
                fold(state, decode(body), seq)
        return state


def known(state: LimitState) -> dict[str, Any]:
    """All that decides what comes next, in a form that can be compared."""
    return {
        "name": state.name,
        "holders": dict(sorted(state.holders.items())),
        "evicting": sorted(state.evicting),
        "waiting": sorted(entry[:POSITION] for entry in state.waiting.entries.values()),
        "fresh": dict(sorted(state.fresh.items())),
        "turn": state.turn,
        "last": state.last,
        "at": state.at,
        "spent": list(state.spent),
        "missing": (state.missing, state.missing_at),
        "settled tokens": state.spent_total,
    }


def holders(state: LimitState) -> list[str]:
    return sorted(state.holders)


def waits(state: LimitState) -> list[str]:
    """In order of arrival."""
    return [entry[HOLDER] for entry in sorted(state.waiting.entries.values(), key=lambda entry: entry[1])]
