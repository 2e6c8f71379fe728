"""What a storm might leave behind of runs that repeat others: good histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence
from chaos_parts.kind_workflows import CHOSEN, MAPPED, RESCUED
from chaos_parts.ledger import Rerun
from chaos_parts.step_account import Seen
from chaos_parts.workflows import CHAIN

from tests.scripts.broken_kinds import EVEN, MADE, ODD, broken, facts
from tests.scripts.broken_promises import (
    COMPLETED,
    OTHER,
    RUN,
    event,
    started,
    step,
)
from tests.scripts.broken_runs import together


def taken(step_id: str, output: Any = None, **more: Any) -> Seen:
    return event("step.taken_over", step_id, {"status": "completed", "output": output, "attempts": 1} | more)


THIRD = "c" * 32


def repeated(
    *events: Seen,
    done: tuple[str, ...] = ("a",),
    from_step: str = "b",
    others: Mapping[str, list[Seen]] = {},
    **more: Any,
) -> Evidence:
    """RUN is repeated by OTHER. `others` are further runs."""
    first = [started(key="k"), *step("a", 7), *step("b", 8), *step("c", 9), COMPLETED]
    origin = {"rerun_of": RUN, "rerun_from": from_step, "takes": {"done": [*done]}, "labels": {"rerun": "r"}}
    begins = event("workflow.started", payload={"input": {"key": "k"}, **origin})
    runs = {RUN: first, OTHER: [begins, *events], **others}
    found = together([*runs.items()], dict.fromkeys(runs, CHAIN))
    found.ledger.keyed_reruns = {"r": Rerun(RUN, "b", **{"answers": [OTHER], **more})}
    return found


REST = (*step("b"), *step("c"), COMPLETED)


def good_rerun_from_a_step() -> Evidence:
    return repeated(taken("a", 7), *REST)


def good_rerun_with_an_output() -> Evidence:
    return repeated(taken("a", "given"), *REST, outputs={"a": "given"})


def begun_before_all_is_taken_over() -> Evidence:
    return repeated(*step("b"), taken("a", 7), *step("c"), COMPLETED)


def taken_over_with_another_output() -> Evidence:
    return repeated(taken("a", 8), *REST)


def given_output_is_lost() -> Evidence:
    return repeated(taken("a", 7), *REST, outputs={"a": "given"})


def taken_over_from_below() -> Evidence:
    return repeated(taken("a", 7), taken("c", 9), *step("b"), COMPLETED, done=("a", "c"))


def not_taken_over() -> Evidence:
    return repeated(*step("a"), *REST, done=())


def taken_over_unasked() -> Evidence:
    return repeated(taken("a", 7), taken("b", 8), *step("c"), COMPLETED)


def repeated_from_another_step() -> Evidence:
    return repeated(taken("a", 7), taken("b", 8), *step("c"), COMPLETED, done=("a", "b"), from_step="c")


def keyed_rerun_is_lost() -> Evidence:
    found = repeated(taken("a", 7), *REST)
    del found.histories[OTHER]
    return found


def keyed_rerun_twice() -> Evidence:
    return repeated(taken("a", 7), *REST, answers=[OTHER, RUN])


def good_rerun_of_a_rerun() -> Evidence:
    """It has the labels of the first, and was asked for by somebody else."""
    origin = {"input": {"key": "k"}, "rerun_of": OTHER, "labels": {"rerun": "r"}}
    again = [event("workflow.started", payload=origin), *step("a"), *REST]
    found = repeated(taken("a", 7), *REST, others={THIRD: again})
    found.ledger.reruns = {OTHER: [THIRD]}
    return found


def good_rerun_of_a_map() -> Evidence:
    """An element that had failed is taken over with it; the map goes on without it."""
    listed = [{"number": 0}, {"number": 1}]
    elements = [facts("m", items=2), *step("m.0", 1), broken("m.1")]
    first = [started(key="k"), *step("list", listed), *elements, *step("after"), COMPLETED]
    origin = {"rerun_of": RUN, "rerun_from": "after", "takes": {"done": ["list", "m"]}, "labels": {"rerun": "r"}}
    copies = [
        taken("list", listed),
        event("step.taken_over", "m.0", {"status": "completed", "output": 1, "attempts": 1, "items": 2}),
        event("step.taken_over", "m.1", {"status": "failed", "error": "chaos: broken", "attempts": 1, "items": 2}),
        event("step.taken_over", "m", {"status": "completed", "attempts": 1, "items": 2}),
    ]
    begins = event("workflow.started", payload={"input": {"key": "k"}, **origin})
    rest = [begins, *copies, *step("after"), COMPLETED]
    found = together([(RUN, first), (OTHER, rest)], {RUN: MAPPED, OTHER: MAPPED})
    found.ledger.keyed_reruns = {"r": Rerun(RUN, "after", answers=[OTHER])}
    return found


def good_rerun_of_an_empty_map() -> Evidence:
    """No element comes before the map, and its output is an empty array."""
    first = [started(key="k"), *step("list", []), facts("m", items=0), *step("after"), COMPLETED]
    origin = {"rerun_of": RUN, "rerun_from": "after", "takes": {"done": ["list", "m"]}, "labels": {"rerun": "r"}}
    copies = [taken("list", []), event("step.taken_over", "m", {"status": "completed", "attempts": 1, "items": 0})]
    begins = event("workflow.started", payload={"input": {"key": "k"}, **origin})
    rest = [begins, *copies, *step("after"), COMPLETED]
    found = together([(RUN, first), (OTHER, rest)], {RUN: MAPPED, OTHER: MAPPED})
    found.ledger.keyed_reruns = {"r": Rerun(RUN, "after", answers=[OTHER])}
    return found


def good_rerun_after_a_recovery() -> Evidence:
    """The handler is taken over with its step."""
    handled = [broken("a"), *step("a.on_failure", MADE), *step("b"), *step("after"), COMPLETED]
    origin = {"rerun_of": RUN, "rerun_from": "b", "takes": {"done": ["a.on_failure", "a"]}, "labels": {"rerun": "r"}}
    copies = [taken("a.on_failure", MADE), taken("a", MADE, status="recovered", error="chaos: broken")]
    begins = event("workflow.started", payload={"input": {"key": "k"}, **origin})
    rest = [begins, *copies, *step("b"), *step("after"), COMPLETED]
    found = together([(RUN, [started(key="k"), *handled]), (OTHER, rest)], {RUN: RESCUED, OTHER: RESCUED})
    found.ledger.keyed_reruns = {"r": Rerun(RUN, "b", answers=[OTHER])}
    return found


def given_anew(
    workflow: str,
    first: tuple[Seen, ...],
    copies: tuple[Seen, ...],
    rest: tuple[Seen, ...],
    from_step: str,
    **outputs: Any,
) -> Evidence:
    """RUN is repeated by OTHER, with these outputs in place of those that RUN has."""
    done = [one.step_id for one in copies if one.step_id in ("a", "b", "list", "m")]
    origin = {"rerun_of": RUN, "rerun_from": from_step, "takes": {"done": done}, "labels": {"rerun": "r"}}
    begins = event("workflow.started", payload={"input": {"key": "k"}, **origin})
    runs = {RUN: [started(key="k"), *first, COMPLETED], OTHER: [begins, *copies, *rest, COMPLETED]}
    found = together([*runs.items()], dict.fromkeys(runs, workflow))
    found.ledger.keyed_reruns = {"r": Rerun(RUN, from_step, outputs, answers=[OTHER])}
    return found


SKIPPED = event("step.skipped", "b")
SKIPPED_ALREADY = event("step.taken_over", "b", {"status": "skipped"})


def good_rerun_with_an_output_that_a_condition_reads() -> Evidence:
    """It was decided in the run before."""
    first = (*step("a", EVEN), *step("b", 8), *step("c"))
    return given_anew(CHOSEN, first, (taken("a", ODD), taken("b", 8)), step("c"), "c", a=ODD)


def good_rerun_of_a_skipped_step_with_an_output() -> Evidence:
    first = (*step("a", ODD), SKIPPED, *step("c"))
    return given_anew(CHOSEN, first, (taken("a", EVEN), SKIPPED_ALREADY), step("c"), "c", a=EVEN)


def begun_against_its_condition_after_a_rerun() -> Evidence:
    first = (*step("a", EVEN), *step("b", 8), *step("c"))
    return given_anew(CHOSEN, first, (taken("a", ODD),), (*step("b"), *step("c")), "b", a=ODD)


def skipped_step_is_taken_over_as_done() -> Evidence:
    first = (*step("a", ODD), SKIPPED, *step("c"))
    return given_anew(CHOSEN, first, (taken("a", ODD), taken("b")), step("c"), "c")


LISTED = [{"number": 0}, {"number": 1}]
ELEMENTS = (facts("m", items=2), *step("m.0", 1), *step("m.1", 2))
WITH_MAP = (*step("list", LISTED), *ELEMENTS, *step("after"))


def _map_taken(count: int) -> tuple[Seen, ...]:
    elements = [
        event(
            "step.taken_over",
            f"m.{number}",
            {"status": "completed", "output": number + 1, "attempts": 1, "items": count},
        )
        for number in range(count)
    ]
    return (*elements, event("step.taken_over", "m", {"status": "completed", "attempts": 1, "items": count}))


def good_rerun_with_an_output_that_a_map_reads() -> Evidence:
    """It has the elements that it had in the run before."""
    copies = (taken("list", LISTED[:1]), *_map_taken(2))
    return given_anew(MAPPED, WITH_MAP, copies, step("after"), "after", list=LISTED[:1])


def map_begins_with_what_it_had_before() -> Evidence:
    rest = (*ELEMENTS, *step("after"))
    return given_anew(MAPPED, WITH_MAP, (taken("list", LISTED[:1]),), rest, "m", list=LISTED[:1])


def map_is_taken_over_with_fewer_elements() -> Evidence:
    return given_anew(MAPPED, WITH_MAP, (taken("list", LISTED), *_map_taken(1)), step("after"), "after")


GOOD: tuple[Callable[[], Evidence], ...] = (
    good_rerun_from_a_step,
    good_rerun_of_a_rerun,
    good_rerun_with_an_output,
    good_rerun_of_a_map,
    good_rerun_of_an_empty_map,
    good_rerun_after_a_recovery,
    good_rerun_with_an_output_that_a_condition_reads,
    good_rerun_of_a_skipped_step_with_an_output,
    good_rerun_with_an_output_that_a_map_reads,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    begun_before_all_is_taken_over: "impossible event",
    taken_over_with_another_output: "taken over",
    given_output_is_lost: "taken over",
    taken_over_from_below: "taken over",
    not_taken_over: "taken over",
    taken_over_unasked: "every run ends",
    repeated_from_another_step: "keyed reruns",
    keyed_rerun_is_lost: "keyed reruns",
    keyed_rerun_twice: "keyed reruns",
    begun_against_its_condition_after_a_rerun: "conditions",
    skipped_step_is_taken_over_as_done: "taken over",
    map_begins_with_what_it_had_before: "maps",
    map_is_taken_over_with_fewer_elements: "taken over",
}
