"""What a storm might leave behind of conditions, sleeps, maps, plans and handlers: good histories, and those that break
one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, ShownRun, ShownStep
from chaos_parts.executions import digest
from chaos_parts.kind_workflows import (
    ASLEEP,
    CHOSEN,
    MAPPED,
    PLANNED,
    RESCUED,
    STRICT,
)
from chaos_parts.step_account import Seen
from chaos_parts.workflows import AGENT
from msgspec.structs import replace

from penstock.engine.times import rfc3339
from tests.scripts.broken_promises import (
    BEGIN,
    COMPLETED,
    RUN,
    event,
    evidence,
    executed,
    started,
    step,
    timer,
)

MADE = {"by": "me"}
EVEN, ODD = {"by": "me", "even": True}, {"by": "me", "even": False}


def facts(step_id: str, attempt: int = 1, **payload: Any) -> Seen:
    return event("step.started", step_id, payload, attempt)


def failed(error: str, step_id: str | None = None) -> Seen:
    return event("workflow.failed", payload={"error": error, **({"step_id": step_id} if step_id else {})})


def broken(step_id: str, error: str = "chaos: broken", attempt: int = 1) -> Seen:
    return event("step.failed", step_id, {"error": error, "failure_type": "non_retriable"}, attempt)


def chosen(*choice: Seen, made: Any = EVEN) -> Evidence:
    return evidence(CHOSEN, started(key="k"), *step("a", made), *choice, *step("c"), COMPLETED)


def good_choice() -> Evidence:
    found = chosen(*step("b"))
    found.executions = [executed("b", {"key": "k", "by": "after me"}), executed("c", {"a": EVEN, "b": "completed"})]
    return found


def good_skip() -> Evidence:
    found = chosen(event("step.skipped", "b"), made=ODD)
    found.executions = [executed("c", {"a": ODD, "b": "skipped"})]
    return found


def begun_against_its_condition() -> Evidence:
    return chosen(*step("b"), made=ODD)


def skipped_against_its_condition() -> Evidence:
    return chosen(event("step.skipped", "b"))


def text_not_filled_in() -> Evidence:
    found = chosen(*step("b"))
    found.executions = [executed("b", {"key": "k", "by": "after ${{ steps.a.output.by }}"})]
    return found


def asleep(lasts_s: float, fires_s: float, end: Seen | None = COMPLETED) -> Evidence:
    """`a` completes 3 s after BEGIN."""
    nap = [facts("nap", wake_at=rfc3339(BEGIN + 3 + lasts_s)), timer("sleep.nap", 1, BEGIN + 3 + fires_s)]
    return evidence(ASLEEP, started(key="k"), *step("a", ODD), *nap, *step("after"), *filter(None, [end]))


def good_sleep() -> Evidence:
    return asleep(lasts_s=2.5, fires_s=2.5)


def too_short_a_sleep() -> Evidence:
    return asleep(lasts_s=1.0, fires_s=2.5)


def woken_early() -> Evidence:
    return asleep(lasts_s=2.5, fires_s=2.0)


def forgotten_sleep() -> Evidence:
    return evidence(ASLEEP, started(key="k"), *step("a", ODD), facts("nap", wake_at=rfc3339(BEGIN + 5.5)))


PIECES = [{"number": number, "by": "me"} for number in range(4)]


def mapped(*elements: Seen, count: int = 4, **more: Any) -> Evidence:
    begun = (started(key="k"), *step("list", PIECES), facts("m", items=count))
    return evidence(MAPPED, *begun, *elements, *step("after"), COMPLETED, **more)


ALL_PIECES = (*step("m.0", 0), *step("m.1", 1), event("step.started", "m.2"), broken("m.2"), *step("m.3", 3))


def good_map() -> Evidence:
    """What has failed stands in its place, whenever it ended."""
    items = [ShownStep(status, 1, output=digest(output)) for status, output in _listed().values()]
    return mapped(
        *ALL_PIECES,
        items={(RUN, "m"): items},
        executions=[
            executed("m.2", PIECES[2]),
            executed(
                "after", [{"ok": True, "output": 0}, {"ok": True, "output": 1}, _BROKEN, {"ok": True, "output": 3}]
            ),
        ],
    )


_BROKEN = {"ok": False, "error": "chaos: broken"}


def _listed() -> dict[int, tuple[str, Any]]:
    return {0: ("completed", 0), 1: ("completed", 1), 2: ("failed", None), 3: ("completed", 3)}


def element_missing() -> Evidence:
    return mapped(*step("m.0"), *step("m.1"), count=2)


def outputs_out_of_order() -> Evidence:
    given = [{"ok": True, "output": 1}, {"ok": True, "output": 0}, _BROKEN, {"ok": True, "output": 3}]
    return mapped(*ALL_PIECES, executions=[executed("after", given)])


def element_before_its_turn() -> Evidence:
    """Three may be out at a time, and this is the fourth."""
    return mapped(event("step.started", "m.3"), *ALL_PIECES)


def element_twice() -> Evidence:
    """Of two results of an element the second is shown."""
    found = mapped(*step("m.0", 0), event("step.completed", "m.0", "second"), *ALL_PIECES[2:])
    steps = dict(found.shown["snapshot"][RUN].steps)
    results = [{"ok": True, "output": "second"}, {"ok": True, "output": 1}, _BROKEN, {"ok": True, "output": 3}]
    steps["m"] = ShownStep("completed", 1, output=digest(results), items=(4, 3, 1, 0))
    found.shown = {"snapshot": {RUN: ShownRun("completed", steps)}}
    return found


def elements_counted_otherwise() -> Evidence:
    found = mapped(*ALL_PIECES)
    steps = dict(found.shown["snapshot"][RUN].steps)
    steps["m"] = ShownStep("completed", 1, output=steps["m"].output, items=(4, 4, 0, 0))
    found.shown = {"snapshot": {RUN: ShownRun("completed", steps)}}
    return found


def element_listed_otherwise() -> Evidence:
    items = [ShownStep(status, 1, output=digest(output)) for status, output in _listed().values()]
    return mapped(*ALL_PIECES, items={(RUN, "m"): [*items[:3], ShownStep("completed", 1, output=digest("other"))]})


def map_not_listed() -> Evidence:
    return mapped(*ALL_PIECES, items={})


def dead_letter_of_a_tolerated_element() -> Evidence:
    return mapped(*ALL_PIECES, dead_letters=frozenset({(RUN, "m.2")}))


def broken_map(dead: set[tuple[str, str]]) -> Evidence:
    error = 'step "m" failed: element 1 failed: chaos: broken'
    events = (*step("list", PIECES), facts("m", items=4), broken("m.1"), failed(error, "m"))
    return evidence(STRICT, started(key="k"), *events, dead_letters=frozenset(dead))


def element_without_dead_letter() -> Evidence:
    return broken_map(set())


def element_of_a_broken_map() -> Evidence:
    """After the replay an element begins again that had completed."""
    error = 'step "m" failed: element 1 failed: chaos: broken'
    begun = (*step("list", PIECES), facts("m", items=4), *step("m.0", 0), broken("m.1"), failed(error, "m"))
    again = (event("workflow.resumed"), facts("m", 2, items=4), *step("m.0", "again", 2))
    rest = [one for number, attempt in ((1, 2), (2, 2), (3, 2)) for one in step(f"m.{number}", number, attempt)]
    dead = frozenset({(RUN, "m.1")})
    return evidence(STRICT, started(key="k"), *begun, *again, *rest, *step("after"), COMPLETED, dead_letters=dead)


def planned(steps: list[dict[str, Any]], *rest: Seen, inserted: list[dict[str, Any]] | None = None) -> Evidence:
    plan = [*step("plan", {"steps": steps}), event("planner.expanded", "plan", {"steps": inserted or steps})]
    return evidence(PLANNED, started(key="k"), *step("a"), *plan, *rest, COMPLETED)


TWO = [{"id": "x", "task": "chaos.work"}, {"id": "y", "task": "chaos.work", "depends_on": ["x"]}]


def good_plan() -> Evidence:
    found = planned(TWO, *step("plan.x", 1), *step("plan.y", 2), *step("after"))
    found.executions = [executed("plan.x", {"key": "k"}), executed("plan.y", 1), executed("after", 2)]
    return found


def plan_with_other_steps() -> Evidence:
    return planned(TWO, *step("plan.x"), *step("after"), inserted=TWO[:1])


def not_waited_for_the_plan() -> Evidence:
    return planned(TWO, *step("plan.x"), *step("after"), *step("plan.y"))


def planned_step_before_its_turn() -> Evidence:
    return planned(TWO, event("step.started", "plan.y"), *step("plan.x"), *step("plan.y"), *step("after"))


DOOMED_A, DOOMED_B = broken("a", "chaos: doomed"), broken("b", "chaos: doomed")


def rescued(*between: Seen, **more: Any) -> Evidence:
    rest = (DOOMED_B, *step("b.on_failure", 2), *step("after"), COMPLETED)
    return evidence(RESCUED, started(key="k"), DOOMED_A, *between, *rest, **more)


def good_rescue() -> Evidence:
    about = {"step": "b", "error": "chaos: doomed", "input": "handled", "attempts": 1}
    return rescued(
        *step("a.on_failure", "handled"),
        executions=[
            executed("a.on_failure", {"key": "k", "of": "a", "why": "chaos: doomed"}),
            executed("b.on_failure", about),
            executed("after", 2),
        ],
    )


def handler_of_no_failure() -> Evidence:
    return evidence(RESCUED, started(key="k"), *step("a.on_failure"), *step("a"), *step("b"), *step("after"), COMPLETED)


def handler_told_something_else() -> Evidence:
    about = {"step": "b", "error": "chaos: other", "input": "handled", "attempts": 1}
    return rescued(*step("a.on_failure", "handled"), executions=[executed("b.on_failure", about)])


def went_on_before_the_handler() -> Evidence:
    return rescued(event("step.started", "b"), *step("a.on_failure"))


def dead_letter_of_a_recovered_step() -> Evidence:
    return rescued(*step("a.on_failure"), dead_letters=frozenset({(RUN, "a")}))


def loop_out_of_time(restored: bool) -> Evidence:
    """It has ten minutes; out of a backup it goes on when the storm is over."""
    begun = event("step.started", "loop", at=BEGIN + 2)
    fails = failed('step "loop" failed: agent loop exceeded its max_duration (10m)', "loop")
    events = [started(key="k"), begun, timer("loop.loop", 0, BEGIN + 603), replace(fails, at=BEGIN + 603)]
    return evidence(AGENT, *events, dead_letters=frozenset({(RUN, "loop")}), restored=restored)


def good_loop_out_of_a_backup() -> Evidence:
    return loop_out_of_time(restored=True)


def loop_that_takes_ten_minutes() -> Evidence:
    return loop_out_of_time(restored=False)


GOOD: tuple[Callable[[], Evidence], ...] = (
    good_loop_out_of_a_backup,
    good_choice,
    good_skip,
    good_sleep,
    good_map,
    good_plan,
    good_rescue,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    loop_that_takes_ten_minutes: "failure with a reason",
    begun_against_its_condition: "conditions",
    skipped_against_its_condition: "conditions",
    text_not_filled_in: "executions",
    too_short_a_sleep: "sleeps",
    woken_early: "timers in time",
    forgotten_sleep: "every run ends",
    element_missing: "maps",
    outputs_out_of_order: "executions",
    element_before_its_turn: "impossible event",
    element_twice: "shown the same",
    elements_counted_otherwise: "shown the same",
    element_listed_otherwise: "maps",
    map_not_listed: "maps",
    dead_letter_of_a_tolerated_element: "dead letters",
    element_without_dead_letter: "dead letters",
    element_of_a_broken_map: "impossible event",
    plan_with_other_steps: "impossible event",
    not_waited_for_the_plan: "impossible event",
    planned_step_before_its_turn: "impossible event",
    handler_of_no_failure: "impossible event",
    handler_told_something_else: "executions",
    went_on_before_the_handler: "impossible event",
    dead_letter_of_a_recovered_step: "dead letters",
}
