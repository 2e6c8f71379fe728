"""What a storm might leave behind of limits: histories with logs of limits that agree with them, and those that break
one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chaos_parts.evidence import Evidence, History
from chaos_parts.ledger import ByHand, Ledger, Start
from chaos_parts.limit_story import Logged
from chaos_parts.limited_workflows import HOUSE, LIMITED, NARROW, NEWEST, RATED, SINGLE
from chaos_parts.step_account import Seen
from msgspec.structs import replace

from tests.scripts.broken_kinds import broken
from tests.scripts.broken_promises import (
    BEGIN,
    CANCELLED,
    COMPLETED,
    OTHER,
    RUN,
    WORKFLOWS,
    event,
    sequence,
    started,
    step,
    timer,
)

THIRD = "c" * 32
Name = tuple[str, str, str | None]
NEWEST_ONE: Name = "runs", NEWEST, None
PIECES: Name = "executions", "chaos-pieces", None
TEAM_OF_B: Name = "executions", f"{NARROW}.b", "none"
RATE_OF_B: Name = "rate", f"{NARROW}.b", None
STARTS: Name = "rate", RATED, None
BUCKET: Name = "rate", f"{RATED}.a", None
SINGLE_ONE: Name = "runs", SINGLE, None
SEVERAL: Name = "runs", "chaos-several", None
ALLOWED: Mapping[Name, dict[str, Any]] = {
    NEWEST_ONE: {"limit": 1},
    PIECES: {"limit": 2},
    TEAM_OF_B: {"limit": 1},
    RATE_OF_B: {"limit": 5, "per_s": 1.0},
    STARTS: {"limit": 3, "per_s": 1.0},
    BUCKET: {"limit": 4, "per_s": 1.0, "burst": 2},
    SINGLE_ONE: {"limit": 1},
    SEVERAL: {"limit": 3},
}


def _named(name: Name) -> dict[str, Any]:
    return {"kind": name[0], "scope": name[1], **({} if name[2] is None else {"key": name[2]})}


def asks(name: Name, holder: str, **more: Any) -> tuple[Name, dict[str, Any]]:
    run_id = holder.partition(".")[0]
    body = {"type": "limit.requested", "name": _named(name), "holder": holder, "run_id": run_id}
    return name, {**body, "allowed": ALLOWED[name], **more}


def gives_back(name: Name, holder: str, why: str = "") -> tuple[Name, dict[str, Any]]:
    return name, {"type": "limit.released", "holder": holder, "why": why}


def decides(name: Name, *granted: str, **more: Any) -> tuple[Name, dict[str, Any]]:
    """It knows all that was asked before it, unless it says what it knows."""
    slots = [{"holder": holder, "run_id": holder.partition(".")[0]} for holder in granted]
    return name, {"type": "limit.decided", "name": _named(name), "allowed": ALLOWED[name], "granted": slots, **more}


def log(*records: tuple[Name, dict[str, Any]], first: int = 1, apart_s: float = 1.0) -> list[Logged]:
    """The stream, one record after the other."""
    found = []
    for seq, (name, body) in enumerate(records, first):
        at = BEGIN + seq * apart_s
        known = {"upto": seq - 1, "at": at} if body["type"] == "limit.decided" else {}
        found.append(Logged(seq, at, "/".join(map(str, name)), {**known, **body}))
    return found


def granted(name: Name, holder: str, step_id: str | None = None, **more: Any) -> Seen:
    said = {"holder": holder, "limit_id": "/".join(map(str, name)), **_named(name), **more}
    return event("limit.granted", payload={**said, **({"step_id": step_id} if step_id else {})})


def refused(name: Name, holder: str, reason: str = "limit") -> Seen:
    return event("limit.refused", payload={"holder": holder, "limit_id": "/".join(map(str, name)), "reason": reason})


def runs(workflow: str, limit_log: Sequence[Logged], **histories: Sequence[Seen]) -> Evidence:
    """The histories by `first`, `second` and so on, each of another key and of RUN, OTHER and THIRD, 100 s apart; what
    goes on at the same time says when it happens."""
    found = {}
    for number, (key, events) in enumerate(histories.items()):
        shifted = [one if one.at else replace(one, at=BEGIN + 100 * number + at) for at, one in enumerate(events, 1)]
        run_id = (RUN, OTHER, THIRD)[number]
        found[run_id] = History(WORKFLOWS[workflow], sequence(started(key=key), *shifted), run_id)
    starts = {key: Start(workflow, [run_id]) for key, run_id in zip(histories, found, strict=True)}
    return Evidence(Ledger(starts=starts), found, limit_log=limit_log)


def newest(run_id: str, end: Seen = COMPLETED) -> list[Seen]:
    return [granted(NEWEST_ONE, f"{run_id}.0"), *step("a"), *step("slow"), end]


def turn(name: Name, holder: str) -> list[tuple[Name, dict[str, Any]]]:
    return [asks(name, holder), decides(name, holder), gives_back(name, holder)]


FIRST, SECOND = f"{RUN}.0", f"{OTHER}.0"
IN_TURN = [*turn(NEWEST_ONE, FIRST), *turn(NEWEST_ONE, SECOND)]


def one_after_the_other() -> Evidence:
    return runs(NEWEST, log(*IN_TURN), first=newest(RUN), second=newest(OTHER))


def replaced_by_a_newer_one() -> Evidence:
    records = [*IN_TURN[:2], asks(NEWEST_ONE, SECOND, on_limit="replace"), decides(NEWEST_ONE, evicted=[FIRST])]
    records += [gives_back(NEWEST_ONE, FIRST), decides(NEWEST_ONE, SECOND), gives_back(NEWEST_ONE, SECOND)]
    first = [granted(NEWEST_ONE, FIRST), *step("a"), CANCELLED]
    return runs(NEWEST, log(*records), first=first, second=newest(OTHER))


def refused_for_the_limit() -> Evidence:
    records = [*_single(FIRST), asks(SEVERAL, SECOND), decides(SEVERAL, SECOND)]
    records += [asks(SINGLE_ONE, SECOND, on_limit="skip"), decides(SINGLE_ONE, refused=[(SECOND, "limit")])]
    records += [gives_back(SEVERAL, SECOND), gives_back(SEVERAL, FIRST), gives_back(SINGLE_ONE, FIRST)]
    second = [granted(SEVERAL, SECOND), refused(SINGLE_ONE, SECOND), CANCELLED]
    return runs(SINGLE, log(*records), first=_singly(FIRST), second=second)


def _single(holder: str) -> list[tuple[Name, dict[str, Any]]]:
    several = [asks(SEVERAL, holder), decides(SEVERAL, holder)]
    return [*several, asks(SINGLE_ONE, holder, on_limit="skip"), decides(SINGLE_ONE, holder)]


def _singly(holder: str) -> list[Seen]:
    return [granted(SEVERAL, holder), granted(SINGLE_ONE, holder), *step("a"), *step("after"), COMPLETED]


def _narrow(*of_m: Seen, of_b: Sequence[Seen] = ()) -> list[Seen]:
    return [*step("list", [1, 2, 3]), event("step.started", "m", {"items": 3}), *of_m, *of_b]


def _pieces(number: int, holder: str = f"{RUN}.m.{{}}.0.1") -> Seen:
    return granted(PIECES, holder.format(number), f"m.{number}")


def _b(attempt: int = 1, pauses: str = "") -> tuple[list[Seen], list[tuple[Name, dict[str, Any]]]]:
    holder = f"{RUN}.b.0.{attempt}{pauses}"
    limits = (TEAM_OF_B, PIECES, RATE_OF_B)
    records = [record for name in limits for record in (asks(name, holder), decides(name, holder))]
    given = [gives_back(name, holder) for name in limits[:2]]
    # by scope: chaos-narrow.b comes before chaos-pieces, and rates last
    return [granted(name, holder, "b") for name in limits], [*records, *given]


def elements_two_at_a_time() -> Evidence:
    """And a step that asks for all its slots again with its second attempt, and after a pause."""
    holders = [f"{RUN}.m.{number}.0.1" for number in range(3)]
    records = [*(asks(PIECES, holder) for holder in holders), decides(PIECES, *holders[:2])]
    records += [gives_back(PIECES, holders[0]), decides(PIECES, holders[2])]
    records += [gives_back(PIECES, holders[2]), gives_back(PIECES, holders[1])]
    elements = [_pieces(0), _pieces(1), *step("m.0"), _pieces(2), *step("m.2"), *step("m.1")]
    first, asked = _b()
    again, asked_again = _b(2, "+1")
    failed = event("step.failed", "b", {"error": "chaos: failed"})
    retried = [timer("retry.b", 2, BEGIN + 50), event("workflow.paused", at=BEGIN + 51)]
    retried += [event("workflow.unpaused", at=BEGIN + 52)]
    later = [replace(one, at=BEGIN + 53 + at) for at, one in enumerate([*again, *step("b", attempt=2), COMPLETED])]
    of_b = [*first, event("step.started", "b"), failed, *retried, *later]
    return runs(NARROW, log(*records, *asked, *asked_again), first=_narrow(*elements, of_b=of_b))


def tokens_in_time() -> Evidence:
    """Three runs within a second and the fourth a second later; a bucket gives two at once."""
    holders = [f"{number}" * 32 + ".0" for number in range(4)]
    begun = [record for holder in holders for record in (asks(STARTS, holder), decides(STARTS, holder))]
    # 0.3 s apart: the fourth decision comes 1.8 s after the first one
    return runs(RATED, log(*begun, *_of_a(range(2)), *_of_rated(), apart_s=0.3), first=_rated())


def _of_rated() -> list[tuple[Name, dict[str, Any]]]:
    execution = f"{RUN}.a.0.1"
    return [
        *(asks(STARTS, FIRST), decides(STARTS, FIRST)),
        *(asks(BUCKET, execution), decides(BUCKET, execution)),
    ]


def _rated() -> list[Seen]:
    slots = granted(STARTS, FIRST), granted(BUCKET, f"{RUN}.a.0.1", "a")
    return [*slots, *step("a"), *step("after"), COMPLETED]


def cancelled_before_it_went_on() -> Evidence:
    """A step was completed by hand while its run waited for its slot again, to go on: it does not."""
    ends = event("workflow.failed", payload={"error": 'step "a" failed: chaos: broken', "step_id": "a"})
    again = event("workflow.resumed", payload={"holds": "a", "waits": 1})
    by_hand = event("step.overridden", "a", {"output": 7})
    first = [granted(NEWEST_ONE, FIRST), event("step.started", "a"), broken("a"), ends, again, by_hand, CANCELLED]
    records = [*IN_TURN, asks(NEWEST_ONE, f"{RUN}.1"), gives_back(NEWEST_ONE, f"{RUN}.1")]
    found = runs(NEWEST, log(*records), first=first, second=newest(OTHER))
    found.ledger.by_hand.append(ByHand(RUN, "a", 7, True))
    found.ledger.cancelled.add(RUN)
    found.dead_letters = frozenset({(RUN, "a")})
    return found


def log_whose_beginning_was_removed() -> Evidence:
    """Unread; from the full decision on the log is sure again."""
    records = [gives_back(NEWEST_ONE, "somebody"), decides(NEWEST_ONE, full=True), *IN_TURN]
    return runs(NEWEST, log(*records, first=40), first=newest(RUN), second=newest(OTHER))


def log_whose_beginning_was_removed_while_somebody_waited() -> Evidence:
    """Who asked there still waits: a decision says so, and a full one stands for it."""
    records = [decides(NEWEST_ONE, waiting=[_waits(SECOND)]), decides(NEWEST_ONE, full=True, open=40, holders=_HELD)]
    records += [gives_back(NEWEST_ONE, FIRST), decides(NEWEST_ONE, SECOND), gives_back(NEWEST_ONE, SECOND)]
    return runs(NEWEST, log(*records, first=40), first=newest(RUN), second=newest(OTHER))


def log_whose_beginning_was_removed_without_who_waits() -> Evidence:
    """A full decision stands for what is not there: the log is not sure yet."""
    records = [decides(NEWEST_ONE, full=True, open=12, holders=_HELD), gives_back(NEWEST_ONE, FIRST)]
    records += [decides(NEWEST_ONE, SECOND), gives_back(NEWEST_ONE, SECOND)]
    return runs(NEWEST, log(*records, first=40), first=newest(RUN), second=newest(OTHER))


def granted_after_a_gap_what_nobody_asked_for() -> Evidence:
    records = [decides(NEWEST_ONE, full=True, holders=_HELD), gives_back(NEWEST_ONE, FIRST)]
    records += [decides(NEWEST_ONE, SECOND), gives_back(NEWEST_ONE, SECOND)]
    return runs(NEWEST, log(*records, first=40), first=newest(RUN), second=newest(OTHER))


def _waits(holder: str) -> dict[str, Any]:
    return {"holder": holder, "run_id": holder.partition(".")[0], "order": 1.0}


_HELD = [{"holder": FIRST, "run_id": RUN}]


# Limits by their log.


def two_hold_what_one_may() -> Evidence:
    records = [*IN_TURN[:2], *IN_TURN[3:5], gives_back(NEWEST_ONE, FIRST), gives_back(NEWEST_ONE, SECOND)]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def granted_before_the_release_is_known() -> Evidence:
    """The decision does not know the release in front of it."""
    records = [*IN_TURN[:2], IN_TURN[3], IN_TURN[2], decides(NEWEST_ONE, SECOND, upto=3), IN_TURN[5]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def granted_what_nobody_asked_for() -> Evidence:
    return runs(NEWEST, log(*IN_TURN[1:]), first=newest(RUN), second=newest(OTHER))


def asked_for_another_limit_than_is_defined() -> Evidence:
    records = [asks(NEWEST_ONE, FIRST, allowed={"limit": 5}), *IN_TURN[1:]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def decided_by_another_limit_than_is_defined() -> Evidence:
    records = [IN_TURN[0], decides(NEWEST_ONE, FIRST, allowed={"limit": 5}), *IN_TURN[2:]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def refused_while_there_is_room() -> Evidence:
    records = [*_single(FIRST), gives_back(SINGLE_ONE, FIRST), asks(SEVERAL, SECOND), decides(SEVERAL, SECOND)]
    records += [asks(SINGLE_ONE, SECOND, on_limit="skip"), decides(SINGLE_ONE, refused=[(SECOND, "limit")])]
    records += [gives_back(SEVERAL, SECOND), gives_back(SEVERAL, FIRST)]
    second = [granted(SEVERAL, SECOND), refused(SINGLE_ONE, SECOND), CANCELLED]
    return runs(SINGLE, log(*records), first=_singly(FIRST), second=second)


def refused_though_it_would_wait() -> Evidence:
    records = [*IN_TURN[:2], asks(NEWEST_ONE, SECOND), decides(NEWEST_ONE, refused=[(SECOND, "limit")]), IN_TURN[2]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=[refused(NEWEST_ONE, SECOND), CANCELLED])


def one_token_too_many() -> Evidence:
    found = tokens_in_time()
    found.limit_log = log(*_records(found), apart_s=0.15)
    return found


def bucket_that_gives_more_than_it_has() -> Evidence:
    found = tokens_in_time()
    records = [*_records(found), *_of_a(range(2, 4))]
    found.limit_log = log(*records, apart_s=0.06)
    return found


def _of_a(numbers: range) -> list[tuple[Name, dict[str, Any]]]:
    return [record for at in numbers for record in (asks(BUCKET, f"{at}.a.0.1"), decides(BUCKET, f"{at}.a.0.1"))]


def _records(found: Evidence) -> list[tuple[Name, dict[str, Any]]]:
    """The records of its log, to be stored at other times."""
    names = {"/".join(map(str, name)): name for name in ALLOWED}
    return [
        (names[one.limit_id], {key: value for key, value in (one.body or {}).items() if key not in ("upto", "at")})
        for one in found.limit_log
    ]


def full_decision_that_forgets_who_holds() -> Evidence:
    records = [*IN_TURN[:2], decides(NEWEST_ONE, full=True), *IN_TURN[2:]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def one_makes_room_that_does_not_hold() -> Evidence:
    records = [asks(NEWEST_ONE, FIRST), decides(NEWEST_ONE, evicted=[FIRST]), *IN_TURN[1:]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


def decision_from_the_future() -> Evidence:
    records = [IN_TURN[0], decides(NEWEST_ONE, FIRST, at=BEGIN + 60), *IN_TURN[2:]]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


# Limits by the histories.


def two_runs_go_on_at_once() -> Evidence:
    early = [replace(one, at=BEGIN + 4) for one in newest(OTHER)]
    return runs(NEWEST, log(*IN_TURN), first=newest(RUN), second=early)


def three_elements_go_on_at_once() -> Evidence:
    found = elements_two_at_a_time()
    elements = [*map(_pieces, range(3)), *step("m.0"), *step("m.2"), *step("m.1")]
    return runs(NARROW, found.limit_log, first=_narrow(*elements))


# Slots and their holders.


def ended_run_still_holds() -> Evidence:
    return runs(NEWEST, log(*IN_TURN[:5]), first=newest(RUN), second=newest(OTHER))


def attempt_that_is_over_still_holds() -> Evidence:
    found = elements_two_at_a_time()
    holder = f"{RUN}.b.0.1"
    found.limit_log = log(*(one for one in _records(found) if one != gives_back(PIECES, holder)))
    return found


def slot_of_which_its_limit_knows_nothing() -> Evidence:
    going_on = [granted(NEWEST_ONE, SECOND), *step("a")]
    return runs(NEWEST, log(*IN_TURN), first=newest(RUN), second=going_on)


def slot_that_was_astray() -> Evidence:
    records = [*IN_TURN[:5], gives_back(NEWEST_ONE, SECOND, why="backstop")]
    return runs(NEWEST, log(*records), first=newest(RUN), second=newest(OTHER))


# Who waits.


def somebody_waits_and_there_is_room() -> Evidence:
    return runs(NEWEST, log(*IN_TURN[:4]), first=newest(RUN), second=[])


def somebody_waits_for_a_token_for_ever() -> Evidence:
    found = tokens_in_time()
    found.limit_log = log(*_records(found), asks(STARTS, f"{OTHER}.0"), apart_s=0.3)
    return found


def somebody_waits_who_has_ended() -> Evidence:
    going_on = [granted(NEWEST_ONE, FIRST), *step("a")]
    return runs(NEWEST, log(*IN_TURN[:2], IN_TURN[3]), first=going_on, second=[CANCELLED])


# News.


def grant_that_was_not_decided() -> Evidence:
    return runs(NEWEST, log(*IN_TURN[:3]), first=newest(RUN), second=newest(OTHER))


def refusal_that_was_not_decided() -> Evidence:
    second = [refused(NEWEST_ONE, SECOND, "replaced"), CANCELLED]
    return runs(NEWEST, log(*IN_TURN[:3]), first=newest(RUN), second=second)


def refused_and_not_cancelled() -> Evidence:
    found = refused_for_the_limit()
    histories = {**found.histories}
    second = histories[OTHER]
    histories[OTHER] = History(second.workflow, second.seen[:-1], OTHER)
    found.histories = histories
    return found


def replaced_and_goes_on() -> Evidence:
    found = replaced_by_a_newer_one()
    first = found.histories[RUN]
    found.histories = {**found.histories, RUN: History(first.workflow, first.seen[:-1], RUN)}
    return found


# What begins, and when.


def step_begins_without_a_token() -> Evidence:
    slots, *rest = _rated()
    return runs(RATED, log(*_of_rated()), first=[slots, *rest[1:]])


def run_begins_without_its_slot() -> Evidence:
    return runs(LIMITED, [], first=[*step("a"), COMPLETED])


def step_keeps_the_slots_of_its_first_attempt() -> Evidence:
    first, asked = _b()
    failed = event("step.failed", "b", {"error": "chaos: failed"})
    of_b = [*first, event("step.started", "b"), failed, timer("retry.b", 2, BEGIN + 50), *step("b", attempt=2)]
    elements = event("step.completed", "list", [])
    none = [event("step.started", "list"), elements, event("step.started", "m", {"items": 0})]
    return runs(NARROW, log(*asked), first=[*none, *of_b])


def grant_to_another_run() -> Evidence:
    return runs(NEWEST, log(*IN_TURN), first=newest(RUN), second=newest(RUN))


def timeout_that_counts_the_wait_for_a_slot() -> Evidence:
    room: Name = "runs", "chaos-rooms", None
    slot = replace(granted(room, FIRST), at=BEGIN + 30)
    return runs(HOUSE, [], first=[slot, timer("workflow", 0, BEGIN + 62)])


GOOD: tuple[Callable[[], Evidence], ...] = (
    one_after_the_other,
    replaced_by_a_newer_one,
    refused_for_the_limit,
    elements_two_at_a_time,
    tokens_in_time,
    cancelled_before_it_went_on,
    log_whose_beginning_was_removed,
    log_whose_beginning_was_removed_while_somebody_waited,
    log_whose_beginning_was_removed_without_who_waits,
)

BY_LOG, BY_HISTORIES = "limits by their log", "limits by the histories"
BROKEN: Mapping[Callable[[], Evidence], str] = {
    two_hold_what_one_may: BY_LOG,
    granted_before_the_release_is_known: BY_LOG,
    granted_what_nobody_asked_for: BY_LOG,
    granted_after_a_gap_what_nobody_asked_for: BY_LOG,
    asked_for_another_limit_than_is_defined: BY_LOG,
    decided_by_another_limit_than_is_defined: BY_LOG,
    refused_while_there_is_room: BY_LOG,
    refused_though_it_would_wait: BY_LOG,
    one_token_too_many: BY_LOG,
    bucket_that_gives_more_than_it_has: BY_LOG,
    full_decision_that_forgets_who_holds: BY_LOG,
    one_makes_room_that_does_not_hold: BY_LOG,
    decision_from_the_future: BY_LOG,
    two_runs_go_on_at_once: BY_HISTORIES,
    three_elements_go_on_at_once: BY_HISTORIES,
    ended_run_still_holds: "slots",
    attempt_that_is_over_still_holds: "slots",
    slot_of_which_its_limit_knows_nothing: "slots",
    slot_that_was_astray: "slots",
    somebody_waits_and_there_is_room: "room",
    somebody_waits_for_a_token_for_ever: "room",
    somebody_waits_who_has_ended: "room",
    grant_that_was_not_decided: "limit news",
    refusal_that_was_not_decided: "limit news",
    refused_and_not_cancelled: "limit news",
    replaced_and_goes_on: "limit news",
    step_begins_without_a_token: "impossible event",
    run_begins_without_its_slot: "every run ends",
    step_keeps_the_slots_of_its_first_attempt: "impossible event",
    grant_to_another_run: "impossible event",
    timeout_that_counts_the_wait_for_a_slot: "timers in time",
}
