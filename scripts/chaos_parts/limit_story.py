"""What the log of one limit says, told by rules of its own: who waits, who holds, and what may not have been decided.

A decision knows what was asked up to its `upto`, and nothing beyond. So what was asked waits in `ahead` until a
decision knows it, or until somebody wants to see how things are at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

ROUNDED_S = 0.002  # of times, and of tokens


class Logged(Struct, frozen=True):
    """A record of the stream of limits: when the broker stored it (s since the epoch), of which limit, and its JSON;
    None for what is no limit's."""

    seq: int
    at: float
    limit_id: str = ""
    body: Mapping[str, Any] | None = None


class Allowed(Struct, frozen=True):
    """What the storm's definitions say of a limit: `per_s` and `burst` are those of a rate."""

    limit: int
    per_s: float | None = None
    burst: int | None = None


class LimitStory:
    """`name` is the limit's kind, scope and key. `problems` are what must not be.

    `whole`: nothing of its log was removed before it was read. `sure`: it is whole, or a full decision has come since,
    and what that stands for was read: so much is what a replay needs. `backstops` are those whose slot was given back
    because they did not hold it. `granted`, `refused` and `evicted` are all holders that ever were.
    """

    def __init__(self, allowed: Mapping[tuple[str, str], Allowed], whole: bool, begins: int = 1) -> None:
        self.name: tuple[str, str, str | None] | None = None
        self.sure = self.whole = whole
        self._read_from = begins
        self.waiting: dict[str, Mapping[str, Any]] = {}
        self.holders: set[str] = set()
        self.granted: set[str] = set()
        self.refused: set[str] = set()
        self.evicted: set[str] = set()
        self.backstops: list[str] = []
        self.problems: list[str] = []
        self._allowed_of = allowed
        self._ahead: deque[Logged] = deque()
        self._settled: dict[str, int] = {}
        self._upto, self._at, self._at_first = 0, 0.0, False
        self._taken: deque[float] = deque()
        self._missing = self._missing_at = 0.0

    @property
    def allowed(self) -> Allowed | None:
        return None if self.name is None else self._allowed_of.get(self.name[:2])

    @property
    def title(self) -> str:
        kind, scope, key = self.name or ("", "?", None)
        return f"the limit {scope} of {kind}" + ("" if key is None else f" for {key!r}")

    def take(self, one: Logged) -> None:
        """One record more, in the order of the stream."""
        assert one.body is not None
        if "name" in one.body and self.name is None:
            named = one.body["name"]
            self.name = named["kind"], named["scope"], named.get("key")
        if one.body["type"] == "limit.decided":
            self._decided(one, one.body)
        else:
            self._ahead.append(one)

    def end(self) -> None:
        """The log is over: take also what no decision knows."""
        self._know(None)

    def forget(self, read_from: int) -> None:
        """Something of the log was not read that is stored before this sequence."""
        self.sure = self.whole = False
        self._read_from = read_from
        self.waiting.clear()
        self.holders.clear()
        self._ahead.clear()
        self._settled.clear()

    def _know(self, upto: int | None) -> None:
        while self._ahead and (upto is None or self._ahead[0].seq <= upto):
            one = self._ahead.popleft()
            assert one.body is not None
            self._asked(one.seq, one.body["holder"], one.body)

    def _asked(self, seq: int, holder: str, ask: Mapping[str, Any]) -> None:
        if ask["type"] == "limit.released":
            if ask.get("why") == "backstop":
                self.backstops.append(holder)
            self.holders.discard(holder)
            self.waiting.pop(holder, None)
            self._settled.pop(holder, None)
        elif holder not in self.holders and holder not in self.waiting and self._settled.get(holder, 0) < seq:
            self.waiting[holder] = ask
            self._check_allowed(f"{holder} asks", ask["allowed"])

    def _decided(self, one: Logged, said: Mapping[str, Any]) -> None:
        self._check_allowed(f"decision {one.seq}", said["allowed"])
        if said["upto"] < self._upto or said["upto"] >= one.seq:
            self._problem(f"decision {one.seq} knows what was asked up to {said['upto']}, after one up to {self._upto}")
        if not self._at - ROUNDED_S <= said["at"] <= one.at + ROUNDED_S:
            self._problem(f"decision {one.seq} of {said['at']:.3f} is stored at {one.at:.3f}, after {self._at:.3f}")
        self._at_first = not (self._upto or self._at or self._ahead)
        self._upto, self._at = said["upto"], said["at"]
        self._know(said["upto"])
        granted = [slot["holder"] for slot in said.get("granted", ())]
        for holder in granted:
            self._grant(holder, one.seq)
        if self.name is not None and self.name[0] == "rate":
            self._take_tokens(one, len(granted), said["at"])
        elif granted and self.allowed is not None and len(self.holders) > self.allowed.limit:
            what = f"{len(self.holders)} hold it after decision {one.seq}, and {self.allowed.limit} may"
            self._problem(f"{what}: {sorted(self.holders)}")
        for holder, reason in said.get("refused", ()):
            self._refuse(one.seq, holder, reason)
        for holder in said.get("evicted", ()):
            if holder not in self.holders:
                self._problem(f"{holder} is to make room (decision {one.seq}), and does not hold it")
            self.evicted.add(holder)
        if not self.sure:
            self._stands_for_requests(said)
        if said.get("full"):
            self._stands_for_all(one, {slot["holder"] for slot in said.get("holders", ())}, said.get("open", 0))

    def _grant(self, holder: str, seq: int) -> None:
        if self.waiting.pop(holder, None) is None:
            self._problem(f"{holder} is granted what it does not wait for (decision {seq})")
        self._settled[holder] = seq
        self.granted.add(holder)
        if self.name is not None and self.name[0] != "rate":
            self.holders.add(holder)

    def _refuse(self, seq: int, holder: str, reason: str) -> None:
        ask = self.waiting.pop(holder, None)
        if ask is None:
            self._problem(f"{holder} is refused (decision {seq}), and does not wait")
        elif reason == "limit" and ask.get("on_limit") != "skip":
            self._problem(f"{holder} is refused (decision {seq}), and would wait")
        elif reason == "limit" and self.allowed is not None and len(self.holders) < self.allowed.limit:
            self._problem(f"{holder} is refused (decision {seq}), and there is room")
        self._settled[holder] = seq
        self.refused.add(holder)

    def _take_tokens(self, one: Logged, count: int, at: float) -> None:
        allowed = self.allowed
        if not count or allowed is None or allowed.per_s is None:
            return
        if allowed.burst is not None:
            back = (at - self._missing_at) * allowed.limit / allowed.per_s
            self._missing, self._missing_at = max(0.0, self._missing - back) + count, at
            if self._missing > allowed.burst + ROUNDED_S:
                self._problem(f"{self._missing:.3f} tokens of {allowed.burst} are missing after decision {one.seq}")
            return
        self._taken.extend([at] * count)
        while self._taken[0] <= at - allowed.per_s:
            self._taken.popleft()
        if len(self._taken) > allowed.limit:
            self._problem(f"{len(self._taken)} begin within {allowed.per_s:g} s, up to decision {one.seq}")

    def _stands_for_requests(self, said: Mapping[str, Any]) -> None:
        for ask in said.get("waiting", ()):
            if ask["holder"] not in self.holders:
                self.waiting.setdefault(ask["holder"], ask)

    def _stands_for_all(self, one: Logged, holders: set[str], oldest: int) -> None:
        """`oldest` is the sequence of the first record by which somebody still waits; 0: nobody waits."""
        begins = self._at_first  # the log of a restored service begins so
        if self.sure and not begins and holders != self.holders:
            self._problem(f"decision {one.seq} says that {sorted(holders)} hold it, and {sorted(self.holders)} do")
        self.sure = self.sure or not oldest or oldest >= self._read_from
        self.holders = holders
        for holder in holders:
            self.waiting.pop(holder, None)

    def _check_allowed(self, who: str, said: Mapping[str, Any]) -> None:
        if (wanted := self.allowed) is None:
            self._problem(f"{who}: no definition names it")
        elif Allowed(said["limit"], said.get("per_s"), said.get("burst")) != wanted:
            self._problem(f"{who} with {said}, and the definition says {wanted}")

    def _problem(self, what: str) -> None:
        if self.sure:
            self.problems.append(what)


def told(log: Iterable[Logged], allowed: Mapping[tuple[str, str], Allowed]) -> dict[str, LimitStory]:
    """The stories of all limits, by their ids. Where sequences are missing, something was removed unread."""
    found: dict[str, LimitStory] = {}
    last, whole, begins = 0, True, 1
    for one in log:
        if one.seq != last + 1:
            whole, begins = False, one.seq
            for story in found.values():
                story.forget(begins)
        last = one.seq
        if one.body is not None:
            found.setdefault(one.limit_id, LimitStory(allowed, whole, begins)).take(one)
    for story in found.values():
        story.end()
    return found


def is_whole(log: Iterable[Logged]) -> bool:
    """Whether no sequence is missing: nothing was removed unread."""
    return all(one.seq == seq for seq, one in enumerate(log, 1))
