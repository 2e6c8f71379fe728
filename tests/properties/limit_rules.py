"""The rules of limits in the plainest form: slow, and with all records at hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed, Decided, LimitRecord, Released, Requested
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import FAIR, HOLDER, ORDER, PRIORITY


@dataclass
class OpenSlots:
    """`waiting`: priority and order by holder. `turn`: the fair value that was served last. `upto`: what the last
    decision knew."""

    holders: set[str] = field(default_factory=set)
    evicting: set[str] = field(default_factory=set)
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict)
    turn: str = ""
    upto: int = 0


def in_turns(state: LimitState, count: int) -> tuple[list[str], str]:
    """The next `count` holders, and the fair value that was served last."""
    waiting = list(state.waiting.entries.values())
    turn, served = state.turn, []
    while waiting and len(served) < count:
        values = sorted({entry[FAIR] for entry in waiting})
        turn = next((value for value in values if value > turn), values[0])
        entry = min(
            (entry for entry in waiting if entry[FAIR] == turn), key=lambda entry: (entry[PRIORITY], entry[ORDER])
        )
        waiting.remove(entry)
        served.append(entry[HOLDER])
    return served, turn


def open_slots(records: dict[int, LimitRecord]) -> OpenSlots:
    """What a limit comes to. Each decision comes right behind the asks that it knew; full ones are passed over, as they
    decide nothing."""
    slots = OpenSlots()
    settled: dict[str, int] = {}
    for (_, _, seq), record in sorted((_when(seq, record), record) for seq, record in records.items()):
        match record:
            case Requested(holder=holder):
                known = holder in slots.holders or holder in slots.waiting
                if not known and settled.get(holder, 0) < seq:
                    slots.waiting[holder] = (record.priority, seq)
            case Released(holder=holder):
                slots.holders.discard(holder)
                slots.evicting.discard(holder)
                slots.waiting.pop(holder, None)
                settled.pop(holder, None)
            case Decided(full=False):
                _decided(slots, settled, record, seq)
    return slots


def _decided(slots: OpenSlots, settled: dict[str, int], decided: Decided, seq: int) -> None:
    for slot in decided.granted:
        slots.waiting.pop(slot.holder, None)
        if decided.name.kind is LimitKind.RATE:
            settled[slot.holder] = seq
        else:
            slots.holders.add(slot.holder)
    for holder, _reason in decided.refused:
        slots.waiting.pop(holder, None)
        settled[holder] = seq
    slots.evicting.update(decided.evicted)
    slots.turn = decided.turn or ""


def tokens_at_least(granted: list[float], allowed: Allowed, now: float) -> int:
    """How many tokens are back at `now` for sure, if tokens were taken at the times `granted`."""
    period, limit, burst = allowed.per_s or 1.0, allowed.limit, allowed.burst
    if burst is None:
        return limit - sum(at + period * 1.0011 > now for at in granted)
    missing, before = 0.0, 0.0
    for at in granted:
        missing, before = max(0.0, missing - (at - before) * limit / period) + 1, at
    return int(burst - max(0.0, missing - (now - before) * limit / period) - 1e-3)


def _when(seq: int, record: LimitRecord) -> tuple[int, bool, int]:
    return (record.upto, True, seq) if isinstance(record, Decided) else (seq, False, seq)
