"""What a storm might leave behind of runs that undo their steps: good histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, ShownRun
from chaos_parts.kind_workflows import GUARDIAN, SHORT_S, UNDONE, WARD
from chaos_parts.ledger import ByHand
from chaos_parts.step_account import Seen
from msgspec.structs import replace

from penstock.engine.times import rfc3339
from tests.scripts.broken_kinds import MADE, PIECES, broken, facts, failed
from tests.scripts.broken_promises import BEGIN, OTHER, RUN, event, evidence, executed, keyed, started, step, timer
from tests.scripts.broken_runs import together

PIECES_DONE = (facts("m", items=2), *step("m.0", 10), *step("m.1", 11))
UP_TO_DOOM = (
    started(key="k"),
    *step("a", MADE),
    *step("list", PIECES[:2]),
    *PIECES_DONE,
    *step("b", 12),
    event("step.started", "slow"),
    event("step.started", "doom"),
    broken("doom", "chaos: doomed"),
    event("workflow.compensating", payload={"error": "", "steps": ["b", "m", "a"]}),
)
DOOMED = 'step "doom" failed: chaos: doomed'


def ended(compensation: str | None = "completed") -> Seen:
    more = {} if compensation is None else {"compensation": compensation}
    return event("workflow.failed", payload={"error": DOOMED, "step_id": "doom", **more})


def undoing(*rest: Seen, **more: Any) -> Evidence:
    """`slow` runs when `doom` fails, after `a`, the elements of `m` and `b` have completed."""
    return evidence(
        UNDONE, *UP_TO_DOOM, *rest, dead_letters=frozenset({(RUN, "doom"), (RUN, "m.0.compensate")}), **more
    )


SLOW_ENDS = event("step.completed", "slow", 13)
UNDO = {step_id: step(f"{step_id}.compensate") for step_id in ("a", "b", "m.0", "m.1", "slow")}
IN_ORDER = (*UNDO["slow"], *UNDO["b"], *UNDO["m.1"], *UNDO["m.0"], *UNDO["a"])


def good_undoing() -> Evidence:
    return undoing(
        SLOW_ENDS,
        *IN_ORDER,
        ended(),
        executions=[
            executed("a.compensate", {"key": "k", "by": "me"}),
            executed("m.1.compensate", {"input": PIECES[1], "output": 11}),
            executed("slow.compensate", {"input": MADE, "output": 13}),
        ],
    )


def good_undoing_that_fails() -> Evidence:
    """What was running fails, and one element cannot be undone: the others are."""
    fails = event("step.failed", "slow", {"error": "chaos: failed"})
    cannot = [event("step.started", "m.0.compensate"), broken("m.0.compensate", "chaos: hopeless")]
    return undoing(fails, *UNDO["b"], *UNDO["m.1"], *cannot, *UNDO["a"], ended("failed"))


def good_undoing_with_late_events() -> Evidence:
    """What cannot be undone is not waited for, and what it does then changes nothing."""
    late = event("step.completed", "doom", 14)
    return undoing(late, SLOW_ENDS, *IN_ORDER, late, ended())


def good_late_start() -> Evidence:
    """Tasks that were withdrawn too late are waited for, while the first step is undone; a map that begins is not."""
    begun = (started(key="k"), *step("a", MADE), *step("list", PIECES), event("workflow.cancelled", payload=OFF))
    said = event("workflow.compensating", payload={"steps": ["a"]})
    late = [facts("m", items=4), *step("b", 12), event("step.started", "slow"), SLOW_ENDS]
    ends = event("workflow.cancelled", payload={"compensation": "completed"})
    undo = [*UNDO["a"], *UNDO["slow"], *UNDO["b"], ends]
    return evidence(UNDONE, *begun, said, *late, *undo, ledger=keyed(UNDONE, cancelled={RUN}))


def good_late_retry() -> Evidence:
    """The second attempt begins late: it is waited for as the first one would be."""
    again = (event("step.failed", "b", {"error": "chaos: failed"}), timer("retry.b", 2, BEGIN + 30))
    begun = (started(key="k"), *step("a", MADE), event("step.started", "b"), *again)
    off = (
        event("workflow.cancelled", payload=OFF, at=BEGIN + 31),
        event("step.started", "b", attempt=2, at=BEGIN + 32),
    )
    late = event("step.completed", "b", 12, attempt=2, at=BEGIN + 33)
    ends = event("workflow.cancelled", payload={"compensation": "completed"})
    return evidence(UNDONE, *begun, *off, *UNDO["a"], late, *UNDO["b"], ends, ledger=keyed(UNDONE, cancelled={RUN}))


def good_late_element_of_a_map_by_hand() -> Evidence:
    """An operator has completed the map: elements that were out are not waited for, and not undone."""
    hand = event("step.overridden", "m", {"output": []})
    begun = (started(key="k"), *step("a", MADE), *step("list", PIECES), facts("m", items=4), *step("m.2", 10), hand)
    off, said = event("workflow.cancelled", payload=OFF), event("workflow.compensating", payload={"steps": ["m", "a"]})
    late = step("m.1", 11)
    ends = event("workflow.cancelled", payload={"compensation": "completed"})
    undo = [*step("m.2.compensate"), *late, *UNDO["a"], ends]
    wanted = keyed(UNDONE, cancelled={RUN}, by_hand=[ByHand(RUN, "m", [], True)])
    return evidence(UNDONE, *begun, off, said, *undo, ledger=wanted)


def guarded(compensate: bool) -> Evidence:
    """The parent RUN fails while OTHER, its child, runs: that is cancelled, and then the parent's end is written."""
    parent = {"run_id": RUN, "step_id": "child"}
    begins = event("workflow.started", payload={"input": {"key": "k"}, "parent": parent})
    top = [started(key="k"), facts("nap", wake_at=rfc3339(BEGIN + 1 + SHORT_S)), facts("child", child_run_id=OTHER)]
    doom = [timer("sleep.nap", 1, BEGIN + 6), broken("doom", "chaos: doomed"), failed(DOOMED, "doom")]
    ends = [event("workflow.cancelled")]
    if compensate:
        said = event("workflow.compensating", payload={"steps": ["a"]})
        last = event("workflow.cancelled", payload={"compensation": "completed"})
        ends = [event("workflow.cancelled", payload=OFF), said, *UNDO["a"], last]
    order = [(RUN, top), (OTHER, [begins, *step("a", MADE)]), (RUN, doom), (OTHER, ends)]
    return together(order, {RUN: GUARDIAN, OTHER: WARD}, dead_letters=frozenset({(RUN, "doom")}))


def good_guard() -> Evidence:
    return guarded(compensate=True)


def child_is_not_undone() -> Evidence:
    return guarded(compensate=False)


OFF = {"compensate": True}


def out_of_time(fires_s: float, begun: str = "slow") -> Evidence:
    """`slow` has 5 s from BEGIN + 13 on, and `doom` fails 6 s later: its timeout is set again, under another name."""
    begins = [event("step.started", begun), event("step.started", "doom")]
    fails = [replace(one, at=BEGIN + 19) for one in UP_TO_DOOM[-2:]]
    undo = [seen for step_id in ("b", "m.1", "m.0", "a") for seen in UNDO[step_id]]
    events = [*UP_TO_DOOM[:-4], *begins, *fails, timer("timeout.slow+1", 1, BEGIN + fires_s), *undo, ended()]
    return evidence(UNDONE, *events, dead_letters=frozenset({(RUN, "doom")}))


def good_timeout_that_is_set_again() -> Evidence:
    return out_of_time(19.001)


def timeout_that_is_set_again_fires_early() -> Evidence:
    return out_of_time(17)


def timeout_that_is_set_again_of_a_step_that_never_began() -> Evidence:
    return out_of_time(19.001, "never")


def undone_in_another_order() -> Evidence:
    return undoing(SLOW_ENDS, *UNDO["slow"], *UNDO["m.1"], *UNDO["b"], *UNDO["m.0"], *UNDO["a"], ended())


def undone_before_what_runs_has_ended() -> Evidence:
    return undoing(*UNDO["b"], SLOW_ENDS, *IN_ORDER, ended())


def not_all_is_undone() -> Evidence:
    return undoing(SLOW_ENDS, *IN_ORDER[:-2], ended())


def late_step_is_not_undone() -> Evidence:
    return undoing(SLOW_ENDS, *IN_ORDER[2:], ended())


def failed_without_undoing() -> Evidence:
    return evidence(UNDONE, *UP_TO_DOOM[:-1], ended(None), dead_letters=frozenset({(RUN, "doom")}))


def undone_that_never_completed() -> Evidence:
    fails = event("step.failed", "slow", {"error": "chaos: failed"})
    return undoing(fails, *IN_ORDER, ended())


def undoing_told_otherwise() -> Evidence:
    """One element could not be undone, and the run says that all are."""
    cannot = [event("step.started", "m.0.compensate"), broken("m.0.compensate", "chaos: hopeless")]
    return undoing(SLOW_ENDS, *IN_ORDER[:6], *cannot, *UNDO["a"], ended("completed"))


def undoing_shown_otherwise() -> Evidence:
    found = good_undoing()
    shown = found.shown["snapshot"][RUN]
    found.shown = {"GET /runs/{id}": {RUN: ShownRun(shown.status, shown.steps, "failed")}}
    return found


def begun_while_undoing() -> Evidence:
    return undoing(event("step.started", "never"), SLOW_ENDS, *IN_ORDER, ended())


def undone_with_another_input() -> Evidence:
    given = executed("b.compensate", {"input": MADE, "output": "other"})
    return undoing(SLOW_ENDS, *IN_ORDER, ended(), executions=[given])


def undoing_announced_otherwise() -> Evidence:
    wrong = event("workflow.compensating", payload={"error": "", "steps": ["a"]})
    dead = frozenset({(RUN, "doom")})
    return evidence(UNDONE, *UP_TO_DOOM[:-1], wrong, SLOW_ENDS, *IN_ORDER, ended(), dead_letters=dead)


GOOD: tuple[Callable[[], Evidence], ...] = (
    good_undoing,
    good_undoing_that_fails,
    good_undoing_with_late_events,
    good_late_start,
    good_late_retry,
    good_late_element_of_a_map_by_hand,
    good_guard,
    good_timeout_that_is_set_again,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    child_is_not_undone: "children",
    timeout_that_is_set_again_fires_early: "timers in time",
    timeout_that_is_set_again_of_a_step_that_never_began: "timers in time",
    undone_in_another_order: "impossible event",
    undone_before_what_runs_has_ended: "impossible event",
    not_all_is_undone: "every run ends",
    late_step_is_not_undone: "every run ends",
    failed_without_undoing: "every run ends",
    undone_that_never_completed: "impossible event",
    undoing_told_otherwise: "every run ends",
    undoing_shown_otherwise: "shown the same",
    begun_while_undoing: "impossible event",
    undone_with_another_input: "executions",
    undoing_announced_otherwise: "impossible event",
}
