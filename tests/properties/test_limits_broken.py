"""Each law of limits notices when it is broken: a limit that does it wrong fails in the same world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest
from msgspec.structs import replace

from penstock.engine.limits import compaction
from penstock.engine.limits.allot import allot
from penstock.engine.limits.fold import fold
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed, Decided, LimitRecord, Released, Requested
from penstock.engine.limits.state import LimitState
from tests.properties.limit_world import ACTIONS, Action, LimitWorld

WORLDS = 400
SLOTS = (LimitKind.RUNS, Allowed(2))
WINDOW = (LimitKind.RATE, Allowed(2, 1.0))
BUCKET = (LimitKind.RATE, Allowed(2, 1.0, 2))


def _one_too_many(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    return allot(state, replace(allowed, limit=allowed.limit + 1), now)


def _too_early(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, max(now, state.at) + 0.3)
    return decided and replace(decided, at=max(now, state.at))


def _too_deep(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    return allot(state, replace(allowed, burst=3), now)


def _timid(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    return allot(state, replace(allowed, limit=min(1, allowed.limit)), now)


def _too_late(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    return allot(state, replace(allowed, per_s=1.5), now)


def _without_turns(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    turn, state.turn = state.turn, ""
    decided = allot(state, allowed, now)
    state.turn = turn
    return decided


def _backwards(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, now)
    return decided and replace(decided, granted=decided.granted[::-1])


def _refuses_nobody(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, now)
    return decided and replace(decided, refused=())


def _evicts_none(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, now)
    return decided and replace(decided, evicted=())


def _evicts_nobody(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, now)
    return decided and replace(decided, evicted=("nobody",))


def _refuses(*refused: tuple[str, str]) -> Callable[..., Decided | None]:
    def refusing(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
        decided = allot(state, allowed, now)
        who = refused or tuple((slot.holder, "limit") for slot in decided.granted[:1]) if decided else ()
        return decided and replace(decided, refused=who)

    return refusing


def _refuses_who_waits(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    decided = allot(state, allowed, now)
    granted = {slot.holder for slot in decided.granted} if decided else set()
    return decided and replace(decided, refused=tuple((h, "limit") for h in state.waiting.entries if h not in granted))


def _without_priority(state: LimitState, record: LimitRecord, seq: int) -> None:
    fold(state, replace(record, priority=0) if isinstance(record, Requested) else record, seq)


def _forgets_releases(state: LimitState, record: LimitRecord, seq: int) -> None:
    """A decision grants a slot to who gave up while it was stored."""
    if isinstance(record, Decided):
        state.released.clear()
    fold(state, record, seq)


def _forgets_whom_it_settled(state: LimitState, record: LimitRecord, seq: int) -> None:
    state.settled.clear()
    fold(state, record, seq)


def _forgets_what_is_new(state: LimitState, record: LimitRecord, seq: int) -> None:
    fold(state, record, seq)
    state.fresh.clear()


def _loses_a_release(state: LimitState, record: LimitRecord, seq: int) -> None:
    if not (isinstance(record, Released) and seq % 5 == 0):
        fold(state, record, seq)


def _loses_a_request(state: LimitState, record: LimitRecord, seq: int) -> None:
    if not (isinstance(record, Requested) and seq % 5 == 0):
        fold(state, record, seq)


def _folds_twice(state: LimitState, record: LimitRecord, seq: int) -> None:
    state.last = 0
    fold(state, record, seq)


def _takes_no_tokens(state: LimitState, record: LimitRecord, seq: int) -> None:
    if isinstance(record, Decided) and not record.full:
        spent, total, missing = state.spent.copy(), state.spent_total, state.missing
        fold(state, record, seq)
        state.spent, state.spent_total, state.missing = spent, total, missing
    else:
        fold(state, record, seq)


def _full(**changes: object) -> Callable[..., Decided]:
    return lambda *args: replace(compaction.full(*args), **changes)


def _knows_too_much(state: LimitState, allowed: Allowed, now: float, upto: int) -> Decided:
    return replace(compaction.full(state, allowed, now, upto), upto=upto + 4)


def _needs_the_last_decision(state: LimitState) -> int:
    return state.last


def _needs_no_news(state: LimitState) -> int:
    news, state.news = state.news, []
    needed = compaction.needed_from(state)
    state.news = news
    return needed


@dataclass
class Broken:
    """A limit that does one thing wrong. `says`: what the law says that fails."""

    says: str
    limit: tuple[LimitKind, Allowed] = SLOTS
    mix: str = "queue"
    allot: Callable[..., Decided | None] = allot
    fold: Callable[..., None] = fold
    full: Callable[..., Decided] = compaction.full

    needed: Callable[[LimitState], int] = compaction.needed_from

    def fails(self) -> bool:
        """In one of many worlds."""
        return any(self.says in self._broken_law(seed) for seed in range(WORLDS))

    def _broken_law(self, seed: int) -> str:
        random = Random(seed)
        actions: list[Action] = [
            (random.choice(ACTIONS), random.randrange(1000), random.randrange(1000)) for _ in range(60)
        ]
        world = LimitWorld(*self.limit, self.mix, self.fold, self.allot, self.full, self.needed)
        try:
            world.perform(actions)
            world.catch_up()
            world.check_rules()
            world.check_replay()
            world.check_nobody_is_forgotten()
            world.check_window()
        except AssertionError as error:
            return str(error)
        return ""


ROOM = "as many as there is room for"
TURNS = "by turns, priority and arrival"
SPAN, DEEP = "no span sees more than the limit", "a bucket never gives more than it has"
HOLD, WAIT, REPLAY = "by the rules, others hold", "by the rules, others wait", "a replay comes to the same state"

BROKEN = {
    "one too many": Broken(ROOM, allot=_one_too_many),
    "room is left": Broken(ROOM, allot=_timid),
    "priority does not count": Broken(WAIT, fold=_without_priority),
    "turns do not count": Broken(TURNS, allot=_without_turns),
    "the last one first": Broken(TURNS, allot=_backwards),
    "a refusal of who begins": Broken("everybody once", allot=_refuses()),
    "a refusal of nobody": Broken("only who waits", allot=_refuses(("nobody", "limit"))),
    "a refusal of who queues": Broken("only who skips is refused", allot=_refuses_who_waits),
    "an eviction of nobody": Broken("only holders are evicted", allot=_evicts_nobody),
    "who skips waits": Broken("nobody waits who skips", mix="skip", allot=_refuses_nobody),
    "who skips is not noticed": Broken("nobody waits who skips", mix="mixed", fold=_forgets_what_is_new),
    "who replaces is not noticed": Broken("the newest takes the place", mix="replace", fold=_forgets_what_is_new),
    "who replaces evicts nobody": Broken("or else of the oldest holder", mix="replace", allot=_evicts_none),
    "a release is lost": Broken(HOLD, fold=_loses_a_release),
    "a request is lost": Broken(WAIT, fold=_loses_a_request),
    "a release while a decision is stored is lost": Broken(HOLD, fold=_forgets_releases),
    "a refused one waits again": Broken(WAIT, mix="skip", fold=_forgets_whom_it_settled),
    "a token twice": Broken(WAIT, WINDOW, fold=_forgets_whom_it_settled),
    "records count twice": Broken("folded twice", WINDOW, fold=_folds_twice),
    "the window is too short": Broken(SPAN, WINDOW, allot=_too_early),
    "the window is too long": Broken("tokens come back in time", WINDOW, allot=_too_late),
    "the bucket is too deep": Broken(DEEP, BUCKET, allot=_too_deep),
    "the bucket is too slow": Broken("tokens come back in time", BUCKET, allot=_too_late),
    "tokens are not taken from a window": Broken(SPAN, WINDOW, fold=_takes_no_tokens),
    "tokens are not taken from a bucket": Broken(DEEP, BUCKET, fold=_takes_no_tokens),
    "full without holders": Broken(HOLD, full=_full(holders=())),
    "full without those evicted": Broken("others are evicted", mix="replace", full=_full(evicting=())),
    "full without tokens of a window": Broken(SPAN, WINDOW, full=_full(spent=())),
    "full without tokens of a bucket": Broken(DEEP, BUCKET, full=_full(missing=0.0)),
    "full without turn": Broken("it is another's turn", full=_full(turn=None)),
    "full up to what is not known": Broken("by the rules", full=_knows_too_much),
    "too much of the log is cut off": Broken(REPLAY, needed=_needs_the_last_decision),
    "news are cut off": Broken("no news is lost", needed=_needs_no_news),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_limit_that_is_broken_fails(broken: Broken) -> None:
    assert broken.fails()


@pytest.mark.parametrize("limit", [SLOTS, WINDOW, BUCKET])
@pytest.mark.parametrize("mix", ["skip", "mixed"])
def test_what_is_not_broken_does_not_fail_in_the_same_worlds(limit: tuple[LimitKind, Allowed], mix: str) -> None:
    sound = Broken("", limit, mix if limit is SLOTS else "queue")

    assert {sound._broken_law(seed) for seed in range(WORLDS // 8)} == {""}
