"""A limit in a world of trouble: asks come twice, late and while a decision is stored, owners crash, logs are cut.

An action is a name and two numbers, which say to whom and how. What the laws compare with is naive and slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.engine.limits import allot as real_allot
from penstock.engine.limits import compaction
from penstock.engine.limits import fold as real_fold
from penstock.engine.limits.names import LimitKind, LimitName, OnLimit
from penstock.engine.limits.records import Allowed, Decided, LimitRecord, Released, Requested, decode, encode
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import HOLDER, ORDER, PRIORITY
from tests.engine.limits.log import known
from tests.properties.limit_rules import OpenSlots, in_turns, open_slots, tokens_at_least

Action: TypeAlias = tuple[str, int, int]
Fold: TypeAlias = Callable[[LimitState, LimitRecord, int], None]
Allot: TypeAlias = Callable[[LimitState, Allowed, float], "Decided | None"]
Full: TypeAlias = Callable[..., Decided]
Needed: TypeAlias = Callable[[LimitState], int]

ACTIONS = (
    *("ask", "ask", "ask", "ask_again", "release", "release", "deliver", "deliver", "turn", "turn", "turn"),
    *("wait", "crash", "redeliver", "change", "compact", "tell"),
)
FAIR_VALUES = (None, None, "a", "b", "c")
MIXES = {
    "queue": ("queue",),
    "skip": ("skip",),
    "replace": ("replace",),
    "mixed": ("queue", "queue", "skip", "replace"),
}


class LimitWorld:
    """`mix` says what newcomers do that find no slot. `log` is what is stored, `all` also what was cut off. The owner
    has got the asks up to `delivered`."""

    def __init__(
        self,
        kind: LimitKind,
        allowed: Allowed,
        mix: str = "queue",
        fold: Fold = real_fold.fold,
        allot: Allot = real_allot.allot,
        full: Full = compaction.full,
        needed: Needed = compaction.needed_from,
    ) -> None:
        self.name = LimitName(kind, "scope")
        self.allowed = allowed
        self.mix = tuple(OnLimit(value) for value in MIXES[mix])
        self.fold, self.allot, self.full, self.needed = fold, allot, full, needed
        self.cut = False
        self.log: dict[int, bytes] = {}
        self.all: dict[int, LimitRecord] = {}
        self.end = 0
        self.owner = LimitState()
        self.delivered = 0
        self.now = 1_800_000_000.0
        self.requests: list[Requested] = []
        self.wanted: dict[str, Requested] = {}
        self.granted: list[tuple[str, float]] = []

    def perform(self, actions: list[Action]) -> None:
        for name, one, two in actions:
            getattr(self, f"_{name}")(one, two)

    # What happens.

    def _ask(self, one: int, two: int) -> None:
        holder = f"r{len(self.requests)}.0"
        request = Requested(
            name=self.name,
            holder=holder,
            run_id=holder.partition(".")[0],
            allowed=self.allowed,
            priority=one % 4 // 2,
            fair=FAIR_VALUES[two % len(FAIR_VALUES)],
            on_limit=self.mix[two % len(self.mix)],
        )
        self.requests.append(request)
        self.wanted[holder] = request
        self._append(request)

    def _ask_again(self, one: int, _: int) -> None:
        """The same request, stored twice: perhaps long behind its release."""
        if self.requests:
            request = self.requests[one % len(self.requests)]
            self._append(request)

    def _release(self, one: int, two: int) -> None:
        held = list(self.owner.holders) if two % 4 else [request.holder for request in self.requests]
        if held:
            holder = held[one % len(held)]
            self.wanted.pop(holder, None)
            self._append(Released(holder=holder))

    def _deliver(self, one: int, _: int) -> None:
        for seq in sorted(seq for seq in self.log if seq > self.delivered)[: one % 6 + 1]:
            self._fold_stored(seq)

    def _turn(self, one: int, two: int) -> None:
        """A crash may come before the decision is stored, or before it is folded."""
        decided = self.allot(self.owner, self.allowed, self.now)
        self._check_choice(decided)
        if decided is None or two % 16 == 0:
            return
        before, seen = self.replayed(), self._seen()
        seq = self._append(decided)
        self._check_room(decided, before, self.replayed())
        self.granted += [(slot.holder, slot.at) for slot in decided.granted]
        for holder, _reason in decided.refused:
            self.wanted.pop(holder, None)
        if two % 16 == 1:
            self._crash(one, two)
        else:
            self.fold(self.owner, decided, seq)
        self._check_newcomers(decided, seen)

    def _wait(self, one: int, two: int) -> None:
        self.now += (one % 1000) / 1000 * (0.01, 0.1, 1.0, 10.0)[two % 4]

    def _crash(self, _one: int, _two: int) -> None:
        """What the owner knew when it had everything, somebody else knows who reads the log."""
        self.catch_up()
        self.check_rules()
        self.check_replay()
        self.owner = self.replayed()

    def _redeliver(self, one: int, _: int) -> None:
        before = known(self.owner)
        for seq in sorted(seq for seq in self.log if seq <= self.delivered)[-(one % 10 + 1) :]:
            self.fold(self.owner, decode(self.log[seq]), seq)
        assert known(self.owner) == before, "a record that is folded twice changes nothing"

    def _change(self, one: int, _: int) -> None:
        if self.name.kind is not LimitKind.RATE:
            self.allowed = Allowed(one % 4)

    def _tell(self, _one: int, _two: int) -> None:
        real_fold.mark_told(self.owner, self.owner.last)

    def _compact(self, one: int, two: int) -> None:
        """A full decision, some that wait are written down again, and then the log goes that nobody needs."""
        if self.owner.name is None:
            return
        decided = self.full(self.owner, self.allowed, self.now, self.delivered)
        self.fold(self.owner, decided, self._append(decided))
        if two % 2:
            waiting = compaction.waiting_before(self.owner, self.delivered)[: one % 3 + 1]
            again = compaction.written_again(self.owner, self.allowed, self.now, waiting)
            self.fold(self.owner, again, self._append(again))
        if two % 3:
            needed = compaction.cut_at(self.owner, self.needed(self.owner))
            self.cut = self.cut or needed > min(self.log)
            self.log = {seq: body for seq, body in self.log.items() if seq >= needed}

    # The laws.

    def catch_up(self) -> None:
        for seq in sorted(seq for seq in self.log if seq > self.delivered):
            self._fold_stored(seq)

    def replayed(self) -> LimitState:
        state = LimitState()
        for seq, body in sorted(self.log.items()):
            self.fold(state, decode(body), seq)
        return state

    def check_replay(self) -> None:
        replayed = self.replayed()
        assert self._known(replayed) == self._known(self.owner), "a replay comes to the same state"
        news = {seq for seq, _ in self.owner.news}
        assert news <= {seq for seq, _ in replayed.news}, "no news is lost"

    def check_rules(self) -> None:
        """When all is delivered."""
        rules, owner = open_slots(self.all), self._seen()
        assert owner.holders == rules.holders, "by the rules, others hold"
        assert self._wanted(owner.waiting) == self._wanted(rules.waiting), "by the rules, others wait"
        assert owner.evicting == rules.evicting, "by the rules, others are evicted"
        assert owner.turn == rules.turn, "by the rules, it is another's turn"

    def check_nobody_is_forgotten(self) -> None:
        """All that ask and want a slot get one, when everybody who holds one ends."""
        self.catch_up()
        self.allowed = self.allowed if self.allowed.limit else Allowed(1)
        seen = {holder for holder, _ in self.granted}
        for _ in range(3 * len(self.requests) + 10):
            seen.update(self.owner.holders)
            for holder in list(self.owner.holders):
                self.wanted.pop(holder, None)
                self._append(Released(holder=holder))
            self.catch_up()
            self.now += 2 * (self.allowed.per_s or 1)
            self._turn(0, 2)
            seen.update(holder for holder, _ in self.granted)
        left = set(self.wanted) - seen
        assert left == set(), "who waits is served in the end"
        assert self.owner.waiting_total == 0, "nobody waits while there is room"

    def _check_choice(self, decided: Decided | None) -> None:
        """What was decided is what a naive reader of the rules would decide, from what the owner knows."""
        free = self._free()
        expected, turn = in_turns(self.owner, free)
        chosen = [] if decided is None else [slot.holder for slot in decided.granted]
        if self.name.kind is LimitKind.RATE:
            assert chosen == in_turns(self.owner, len(chosen))[0], "by turns, priority and arrival"
            back = tokens_at_least([at for _, at in self.granted], self.allowed, self.now)
            assert len(chosen) >= min(back, self.owner.waiting_total), "tokens come back in time"
            return
        assert chosen == expected, "by turns, priority and arrival, as many as there is room for"
        if decided is not None:
            assert (decided.turn or "") == turn, "the turn is the value that was served last"

    def _check_newcomers(self, decided: Decided, before: OpenSlots) -> None:
        """Who does not want to wait does not wait behind the decision. Where all replace, one waits at most. Who waits
        because it replaces has displaced somebody, if there was one. `before`: the owner's view."""
        waiting = self.owner.waiting.entries
        wish = {request.holder: request.on_limit for request in self.requests}
        considered = {holder for holder, (_, order) in before.waiting.items() if order <= decided.upto} & set(waiting)
        assert all(wish[holder] is not OnLimit.SKIP for holder in considered), "nobody waits who skips"
        assert all(wish[holder] is OnLimit.SKIP for holder, reason in decided.refused if reason == "limit"), (
            "only who skips is refused for the limit"
        )
        if set(self.mix) == {OnLimit.REPLACE}:
            assert len(considered) <= 1, "the newest takes the place of who waits"
        if any(waiting[holder][ORDER] > before.upto and wish[holder] is OnLimit.REPLACE for holder in considered):
            displaced = before.evicting or decided.evicted or any(reason == "replaced" for _, reason in decided.refused)
            assert displaced or not (before.holders or decided.granted), "or else of the oldest holder"

    def _check_room(self, decided: Decided, before: LimitState, after: LimitState) -> None:
        assert len(after.holders) <= max(decided.allowed.limit, len(before.holders)), "never more than the limit"
        assert set(before.holders) <= set(after.holders), "a decision ends nobody"
        waiting = set(self.owner.waiting.entries)
        named = [slot.holder for slot in decided.granted] + [holder for holder, _ in decided.refused]
        assert set(named) <= waiting, "only who waits is granted or refused"
        assert len(named) == len(set(named)), "everybody once"
        assert set(decided.evicted) <= {*self.owner.holders, *(slot.holder for slot in decided.granted)}, (
            "only holders are evicted"
        )

    def check_window(self) -> None:
        """No span of the period sees more than the limit. Buckets: never more than depth and what has come since."""
        if self.name.kind is not LimitKind.RATE:
            return
        period, limit, burst = self.allowed.per_s or 1.0, self.allowed.limit, self.allowed.burst
        times = [at for _, at in self.granted]
        for first, begin in enumerate(times):
            if burst is None:
                assert sum(begin <= at < begin + period for at in times) <= limit, "no span sees more than the limit"
                continue
            for last in range(first, len(times)):
                came = (times[last] - begin) * limit / period
                assert last - first + 1 <= burst + came + 1e-3, "a bucket never gives more than it has"

    # Its helpers.

    def _append(self, record: LimitRecord) -> int:
        self.end += 1 + self.end % 3  # other limits write to the same log
        self.log[self.end] = encode(record)
        self.all[self.end] = record
        return self.end

    def _fold_stored(self, seq: int) -> None:
        self.fold(self.owner, decode(self.log[seq]), seq)
        self.delivered = seq

    def _free(self) -> int:
        return max(0, self.allowed.limit - len(self.owner.holders))

    def _seen(self) -> OpenSlots:
        waiting = {holder: (-entry[PRIORITY], entry[ORDER]) for holder, entry in self.owner.waiting.entries.items()}
        return OpenSlots(
            set(self.owner.holders), set(self.owner.evicting), waiting, self.owner.turn, self.owner.decided_upto
        )

    def _known(self, state: LimitState) -> dict[str, Any]:
        """A cut log does not always say that a request comes late, behind its release. Nobody wants that one anyway."""
        everything = known(state)
        waiting = {entry[HOLDER]: entry for entry in everything["waiting"]}
        return everything | {"waiting": self._wanted(waiting), "fresh": self._wanted(everything["fresh"])}

    def _wanted(self, waiting: dict[str, Any]) -> dict[str, Any]:
        return {holder: value for holder, value in waiting.items() if holder in self.wanted or not self.cut}
