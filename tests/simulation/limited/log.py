"""The log of one limit, told by rules of its own: who waits, who holds, what was decided when it was known what."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Decided, LimitRecord, Released, Requested
from tests.simulation.broken import Broken

ROUNDED_S = 0.002
NOBODY = -1


class Wish(NamedTuple):
    """A request that is not settled, in the order of these sequences."""

    seq: int
    request: Requested


class LimitStory:
    """One limit's, in the order of its log. `record` raises Broken for what must not be.

    A decision knows the asks up to its `upto`; those behind it are told only after it, as they come. So what is asked
    waits in `unknown` until a decision knows it, or until somebody wants to see how things are now.
    """

    def __init__(self, name: LimitName) -> None:
        self.name = name
        self.waiting: dict[str, Wish] = {}
        self.holders: dict[str, int] = {}
        self.granted: set[str] = set()
        self.late: set[str] = set()  # granted by a former owner whose decision perhaps nobody has read
        self._settled: dict[str, int] = {}
        self._evicted: set[str] = set()
        self._unknown: deque[tuple[int, Requested | Released]] = deque()
        self._spent: deque[float] = deque()
        self._missing = self._missing_at = self._at = 0.0
        self.turns = self._upto = 0  # how many slots were granted
        self._served: dict[str, int] = {}
        self._busy_since: dict[str, int] = {}

    @property
    def is_rate(self) -> bool:
        return self.name.kind is LimitKind.RATE

    def record(self, record: LimitRecord, seq: int, at: float) -> None:
        """`at` is when the record was stored. Raises Broken."""
        if isinstance(record, Decided):
            self._decided(record, seq, at)
        else:
            self._unknown.append((seq, record))

    def is_late(self, decided: Decided) -> bool:
        """Whether a decision is that of a former owner: it knows less than another one before it, or as much and was
        made earlier."""
        return decided.upto < self._upto or (decided.upto == self._upto and decided.at < self._at - ROUNDED_S)

    def record_late(self, decided: Decided) -> None:
        """The first decision of a former owner, which comes when nothing is stored of the limit any more: it is stored
        then, as the first one of all. Nobody may hold a slot at that time. Who is granted one gives it back when the
        owner has read it, at the latest when somebody asks: the owner's next decision is refused. Raises Broken."""
        if holders := self.open()[1]:
            raise self._broken(f"a former owner has decided {decided}, and {sorted(holders)} hold it")
        if not self.is_rate:
            self.holders |= {granted.holder: NOBODY for granted in decided.granted}
            self.late |= {granted.holder for granted in decided.granted}

    def open(self) -> tuple[set[str], set[str]]:
        """Who waits and who holds by all that is in the log."""
        waiting, holders = set(self.waiting), set(self.holders)
        for seq, ask in self._unknown:
            if isinstance(ask, Released):
                waiting.discard(ask.holder)
                holders.discard(ask.holder)
            elif not (ask.holder in holders or seq < self._settled.get(ask.holder, 0)):
                waiting.add(ask.holder)
        return waiting, holders

    def has_room(self, allowed: int) -> bool:
        """Whether somebody waits for a slot that nobody has, by all that is in the log."""
        waiting, holders = self.open()
        return bool(waiting) and (self.is_rate or len(holders) < allowed)

    # What a decision knows

    def _know(self, upto: int) -> list[Wish]:
        """Take what was asked up to this sequence. Returns what came new."""
        fresh = []
        while self._unknown and self._unknown[0][0] <= upto:
            seq, ask = self._unknown.popleft()
            if isinstance(ask, Released):
                self._gone(ask.holder)
                self.holders.pop(ask.holder, None)
                self._evicted.discard(ask.holder)  # a frozen owner may ask under its name once more, much later
            elif not (self._is_known(ask.holder) or seq < self._settled.get(ask.holder, 0)):
                self._busy_since.setdefault(ask.fair or "", self.turns)
                wish = self.waiting[ask.holder] = Wish(seq, ask)
                fresh.append(wish)
        return [wish for wish in fresh if wish.request.holder in self.waiting]

    def _is_known(self, holder: str) -> bool:
        return holder in self.waiting or holder in self.holders

    def _gone(self, holder: str) -> None:
        wish = self.waiting.pop(holder, None)
        fair = None if wish is None else wish.request.fair or ""
        if fair is not None and not any((one.request.fair or "") == fair for one in self.waiting.values()):
            del self._busy_since[fair]

    # Decisions

    def _decided(self, decided: Decided, seq: int, at: float) -> None:
        if decided.upto < self._upto:
            raise self._broken(f"a decision knows less than the one before it: {decided.upto}, not {self._upto}")
        if not self._at - ROUNDED_S <= decided.at <= at + ROUNDED_S:
            raise self._broken(f"a decision of {decided.at:.3f} is stored at {at:.3f}, after one of {self._at:.3f}")
        self._upto, self._at = decided.upto, decided.at
        fresh = self._know(decided.upto)
        for granted in decided.granted:
            self._grant(granted.holder, seq)
        if self.is_rate:
            self._take(len(decided.granted), decided.allowed, decided.at)
        elif decided.granted and len(self.holders) > decided.allowed.limit:
            raise self._broken(f"{len(self.holders)} hold it, and {decided.allowed.limit} may: {sorted(self.holders)}")
        made_way, evicts = self._replaced_by(fresh)
        replaced = [holder for holder, reason in decided.refused if reason == "replaced"]
        if len(replaced) != made_way:
            raise self._broken(f"{replaced} are replaced, and {made_way} had to make way")
        most = int(evicts and bool(self.holders) and not self._evicted & set(self.holders))
        if len(decided.evicted) != most:
            raise self._broken(f"{decided.evicted} are evicted, and {most} had to make way")
        for holder, reason in decided.refused:
            self._refuse(holder, reason, seq)
        for holder in decided.evicted:
            if holder not in self.holders:
                raise self._broken(f"{holder} is evicted, and does not hold it")
            self._evicted.add(holder)
        if stays := [wish for wish in fresh if wish.request.on_limit == "skip" and wish.request.holder in self.waiting]:
            raise self._broken(f"{stays[0].request.holder} waits, and would not")
        if decided.full and {one.holder for one in decided.holders} != set(self.holders):
            raise self._broken(f"a full decision names {decided.holders}, and {sorted(self.holders)} hold it")
        for one in decided.waiting:
            wish = self.waiting.get(one.holder)
            said = None if wish is None else (wish.seq, wish.request.run_id, wish.request.step_id)
            if said != (one.order, one.run_id, one.step_id):
                raise self._broken(f"a decision says that {one} waits, and its request is {wish}")

    def _grant(self, holder: str, seq: int) -> None:
        wish = self.waiting.get(holder)
        if wish is None:
            raise self._broken(f"{holder} is granted what it does not wait for")
        self._check_order(wish)
        self._gone(holder)
        self._settled[holder] = seq
        self.turns += 1
        self._served[wish.request.fair or ""] = self.turns
        self.granted.add(holder)
        if not self.is_rate:
            self.holders[holder] = wish.seq

    def _check_order(self, wish: Wish) -> None:
        """Of those with one fair value the one with the largest priority comes, and of these the first; everybody else
        has had a turn since the last one of this value."""
        fair, request = wish.request.fair or "", wish.request
        for other in self.waiting.values():
            same = (other.request.fair or "") == fair
            if same and (-other.request.priority, other.seq) < (-request.priority, wish.seq):
                raise self._broken(f"{request.holder} comes before {other.request.holder}")
        last = self._served.get(fair, NOBODY)
        for other_fair, since in self._busy_since.items():
            if other_fair != fair and since < last and self._served.get(other_fair, NOBODY) < last:
                raise self._broken(f"{fair!r} is served again, and {other_fair!r} waits for its turn")

    def _take(self, count: int, allowed: Allowed, at: float) -> None:
        """Tokens are taken. Raises Broken when there are not as many."""
        period = allowed.per_s or 1.0
        if allowed.burst is not None:
            back = (at - self._missing_at) * allowed.limit / period
            self._missing, self._missing_at = max(0.0, self._missing - back) + count, at
            if count and self._missing > allowed.burst + ROUNDED_S:
                raise self._broken(f"{self._missing:.3f} tokens of {allowed.burst} are missing")
            return
        self._spent.extend([at] * count)
        while self._spent and self._spent[0] <= at - period:
            self._spent.popleft()
        if count and len(self._spent) > allowed.limit:
            raise self._broken(f"{len(self._spent)} have begun within {period:g} s")

    def _replaced_by(self, fresh: list[Wish]) -> tuple[int, bool]:
        """How many who wait make way for newcomers that replace others, and whether a holder does.

        Each of them replaces one that waits: the first one somebody before it, the others at least each other.
        """
        new = [wish for wish in fresh if wish.request.holder in self.waiting]
        replacing = [wish for wish in new if wish.request.on_limit == "replace"]
        if not replacing:
            return 0, False
        leave = {wish.request.holder for wish in new if wish.request.on_limit == "skip"}
        stay = [wish for holder, wish in self.waiting.items() if holder not in leave]
        evicts = not any(wish.seq < replacing[0].seq for wish in stay)
        return len(replacing) - evicts, evicts

    def _refuse(self, holder: str, reason: str, seq: int) -> None:
        wish = self.waiting.get(holder)
        if wish is None:
            raise self._broken(f"{holder} is refused, and does not wait")
        if reason == "limit" and wish.request.on_limit != "skip":
            raise self._broken(f"{holder} is refused, and would wait")
        self._gone(holder)
        self._settled[holder] = seq

    def _broken(self, what: str) -> Broken:
        return Broken(f"limit {self.name.kind} {self.name.scope} {self.name.key or ''}: {what}")
