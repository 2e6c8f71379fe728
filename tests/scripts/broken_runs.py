"""What a storm might leave behind between runs, and of what users were
answered: good histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, History, Sent
from chaos_parts.kind_workflows import ANSWER, CALLED, CHILD, FETCHED, MAPPED, MOURNER, PARENT, RESCUED
from chaos_parts.ledger import Batch, ByHand, CallAnswer, Ledger, Requested, SentEvent, Start
from chaos_parts.step_account import Seen
from chaos_parts.workflows import BRIEF

from tests.scripts.broken_kinds import DOOMED_A, MADE, broken, facts, failed
from tests.scripts.broken_promises import (
    BEGIN,
    BRIEFLY,
    COMPLETED,
    OTHER,
    RUN,
    WORKFLOWS,
    event,
    evidence,
    keyed,
    sequence,
    started,
    step,
)

ANSWERED = {"order": {"key": "k"}, "number": 0, "name": "k-answer-0"}
CHILDS = {"child": RUN, "by": "me"}
ASIDE = "a51de" + "0" * 27


def family(
    end: Seen = COMPLETED,
    told_end: Mapping[str, Any] = {"status": "completed"},
    value: Any = CHILDS,
    parent: Mapping[str, Any] = {"run_id": RUN, "step_id": "child"},
    workflow: str = CHILD,
    late_end: bool = False,
) -> Evidence:
    """A parent, and OTHER, its child. Both histories are in one stream."""
    top = [started(key="k"), *step("a", MADE)]
    begins = event("workflow.started", payload={"input": value, "parent": dict(parent)})
    within = [*step("x"), *step("y"), end]
    ends = event("child.ended", "child", {"run_id": OTHER, **told_end})
    aside = facts("aside", child_run_id=ASIDE)
    rest = [facts("child", child_run_id=OTHER), ends, aside, *step("after"), COMPLETED]
    if late_end:
        order = [(RUN, top), (OTHER, [begins, *within[:-1]]), (RUN, rest), (OTHER, [end])]
    else:
        order = [(RUN, top), (OTHER, [begins, *within]), (RUN, rest)]
    alone = {"input": MADE, "parent": {"run_id": RUN, "step_id": "aside", "detached": True}}
    order.append((ASIDE, [event("workflow.started", payload=alone), *within[:-1], COMPLETED]))
    return together(order, {RUN: PARENT, OTHER: workflow, ASIDE: CHILD})


def together(order: list[tuple[str, list[Seen]]], workflows: Mapping[str, str], **more: Any) -> Evidence:
    """Runs whose events stand in one stream in this order."""
    owners = [run_id for run_id, events in order for _ in events]
    stream = sequence(*(one for _, events in order for one in events))
    histories = {
        run_id: History(
            WORKFLOWS[workflow], [one for one, owner in zip(stream, owners, strict=True) if owner == run_id], run_id
        )
        for run_id, workflow in workflows.items()
    }
    ledger = Ledger(starts={"k": Start(workflows[RUN], [RUN])})
    return Evidence(ledger, histories, **more)


def child_twice() -> Evidence:
    found = family()
    third = "c" * 32
    found.histories[third] = History(WORKFLOWS[CHILD], found.histories[OTHER].seen, third)
    return found


def child_not_there() -> Evidence:
    found = family()
    del found.histories[OTHER]
    return found


def child_of_nobody() -> Evidence:
    return family(parent={"run_id": RUN, "step_id": "after"})


def child_of_another_attempt() -> Evidence:
    return family(parent={"run_id": RUN, "step_id": "child", "attempt": 2})


def child_of_another_workflow() -> Evidence:
    return family(workflow=MAPPED)


def child_with_another_input() -> Evidence:
    return family(value={"child": "${{ run.id }}", "by": "me"})


def child_has_failed_and_is_told_completed() -> Evidence:
    return family(end=failed('step "y" failed: chaos: broken'))


def child_ended_after_it_was_told() -> Evidence:
    return family(late_end=True)


def child_with_another_output() -> Evidence:
    return family(told_end={"status": "completed", "output": "other"})


def child_goes_on_for_ever() -> Evidence:
    """Its parent has ended without it."""
    begins = event("workflow.started", payload={"input": CHILDS, "parent": {"run_id": RUN, "step_id": "child"}})
    top = [started(key="k"), *step("a", MADE)]
    end = [facts("child", child_run_id=OTHER), event("workflow.cancelled")]
    return together([(RUN, top), (OTHER, [begins]), (RUN, end)], {RUN: PARENT, OTHER: CHILD})


def detached_child_is_cancelled() -> Evidence:
    """RUN has completed with it."""
    parent = {"run_id": RUN, "step_id": "aside", "detached": True}
    begins = event("workflow.started", payload={"input": MADE, "parent": parent})
    top = [started(key="k"), *step("a", MADE), facts("aside", child_run_id=OTHER)]
    return together([(RUN, top), (OTHER, [begins, event("workflow.cancelled")])], {RUN: PARENT, OTHER: CHILD})


def good_detached_child_of_a_step_by_hand() -> Evidence:
    """The step was completed by hand before it was said that the child is started: the child is cancelled with it."""
    parent = {"run_id": RUN, "step_id": "aside", "detached": True}
    begins = event("workflow.started", payload={"input": MADE, "parent": parent})
    top = [started(key="k"), *step("a", MADE), event("step.overridden", "aside", {"output": 7})]
    late = [facts("aside", child_run_id=ASIDE), facts("child", child_run_id=OTHER)]
    childs = event("workflow.started", payload={"input": CHILDS, "parent": {"run_id": RUN, "step_id": "child"}})
    told = event("child.ended", "child", {"run_id": OTHER, "status": "completed"})
    order = [
        (RUN, top),
        (ASIDE, [begins, event("workflow.cancelled")]),
        (RUN, late),
        (OTHER, [childs, *step("x"), *step("y"), COMPLETED]),
        (RUN, [told, *step("after"), COMPLETED]),
    ]
    found = together(order, {RUN: PARENT, OTHER: CHILD, ASIDE: CHILD})
    found.ledger.by_hand.append(ByHand(RUN, "aside", 7, True))
    return found


def child_not_listed() -> Evidence:
    found = family()
    found.children = {RUN: []}
    return found


def anothers_child_listed() -> Evidence:
    found = family()
    found.children = {RUN: [OTHER], OTHER: ["c" * 32]}
    return found


BOTH = 'step "a" failed: chaos: doomed; its on_failure failed, too: chaos: broken'


def unrescued(dead: set[tuple[str, str]], follow: list[dict[str, Any]], failure_of: str = RUN) -> Evidence:
    """Its handler has failed, too. What follows are runs with these inputs."""
    events = [started(key="k"), DOOMED_A, broken("a.on_failure"), failed(BOTH, "a")]
    runs = {chr(ord("b") + number) * 32: value for number, value in enumerate(follow)}
    order = [(RUN, events)]
    for run_id, value in runs.items():
        begins = event("workflow.started", payload={"input": value, "failure_of": failure_of})
        order.append((run_id, [begins, *step("a"), COMPLETED]))
    return together(order, {RUN: RESCUED, **dict.fromkeys(runs, MOURNER)}, dead_letters=frozenset(dead))


BOTH_LETTERS = {(RUN, "a"), (RUN, "a.on_failure")}
ABOUT = {"run_id": RUN, "workflow": RESCUED, "error": BOTH, "failed_step": "a", "input": {"key": "k"}}


def good_failure() -> Evidence:
    return unrescued(BOTH_LETTERS, [ABOUT])


def handled_step_without_dead_letter() -> Evidence:
    return unrescued({(RUN, "a.on_failure")}, [ABOUT])


def nothing_follows_the_failure() -> Evidence:
    return unrescued(BOTH_LETTERS, [])


def two_runs_follow_the_failure() -> Evidence:
    return unrescued(BOTH_LETTERS, [ABOUT, ABOUT])


def failure_reported_otherwise() -> Evidence:
    return unrescued(BOTH_LETTERS, [{**ABOUT, "error": "chaos: other"}])


def failure_of_nobody() -> Evidence:
    return unrescued(BOTH_LETTERS, [ABOUT], failure_of="f" * 32)


def sent(*seqs: int, stored: tuple[int, ...]) -> Evidence:
    ledger = keyed(sent={"k-answer-0": SentEvent(ANSWER, ANSWERED, list(seqs))})
    events = [Sent(seq, BEGIN, ANSWER, ANSWERED) for seq in stored]
    return evidence(BRIEF, *BRIEFLY, ledger=ledger, events=events)


def good_event() -> Evidence:
    return sent(7, 7, stored=(7,))


def acknowledged_event_is_lost() -> Evidence:
    return sent(7, stored=())


def event_stored_twice() -> Evidence:
    return sent(7, stored=(7, 9))


def event_answered_with_two_sequences() -> Evidence:
    return sent(7, 9, stored=(7,))


def called(status: int, body: Any) -> Evidence:
    reply = facts("answer", reply={"status": 201, "headers": {"x-key": "k"}, "body": MADE})
    ledger = Ledger(starts={"k": Start(CALLED, [RUN])}, calls={"k": [CallAnswer(RUN, status, body)]})
    return evidence(CALLED, started(key="k"), *step("a", MADE), reply, *step("after"), COMPLETED, ledger=ledger)


def good_call() -> Evidence:
    return called(201, MADE)


def good_patience() -> Evidence:
    return called(202, {"run_id": RUN})


def caller_gets_something_else() -> Evidence:
    return called(201, {"by": "you"})


def caller_gets_a_failure() -> Evidence:
    return called(502, None)


def caller_gets_another_run() -> Evidence:
    return called(202, {"run_id": OTHER})


def fetched(asked: Requested, output: Mapping[str, Any] = {"status": 200, "headers": {}, "body": 7}) -> Evidence:
    events = (*step("a", MADE), *step("fetch", dict(output)), *step("after"), COMPLETED)
    ledger = keyed(FETCHED, requests=[asked])
    return evidence(FETCHED, started(key="k", url="http://x"), *events, ledger=ledger)


def good_request() -> Evidence:
    return fetched(Requested("/k", f"{RUN}.fetch", "me", 200, 7))


def request_of_nobody() -> Evidence:
    return fetched(Requested("/k", f"{OTHER}.fetch", "me", 200, 7))


def request_without_its_key() -> Evidence:
    return fetched(Requested("/k", "", "me", 200, 7))


def request_with_another_header() -> Evidence:
    return fetched(Requested("/k", f"{RUN}.fetch", "${{ steps.a.output.by }}", 200, 7))


def response_that_nobody_gave() -> Evidence:
    return fetched(Requested("/k", f"{RUN}.fetch", "me", 200, 8))


def refusal_that_completes() -> Evidence:
    output = {"status": 404, "headers": {}, "body": 7}
    return fetched(Requested("/k", f"{RUN}.fetch", "me", 404, 7), output)


def rerun(*values: dict[str, Any], answered: tuple[str, ...] = ()) -> Evidence:
    """RUN has failed, and was repeated by runs with these inputs."""
    runs = {chr(ord("b") + number) * 32: value for number, value in enumerate(values)}
    first = [started(key="k"), broken("a"), failed('step "a" failed: chaos: broken', "a")]
    order = [(RUN, first)]
    for run_id, value in runs.items():
        begins = event("workflow.started", payload={"input": value, "rerun_of": RUN})
        order.append((run_id, [begins, *step("a"), COMPLETED]))
    found = together(order, {RUN: BRIEF, **dict.fromkeys(runs, BRIEF)}, dead_letters=frozenset({(RUN, "a")}))
    found.ledger.reruns = {RUN: list(answered)} if answered else {}
    return found


def good_rerun() -> Evidence:
    return rerun({"key": "k"}, answered=(OTHER,))


def repeated_twice() -> Evidence:
    return rerun({"key": "k"}, {"key": "k"})


def repeat_is_lost() -> Evidence:
    return rerun(answered=(OTHER,))


def repeated_with_another_input() -> Evidence:
    return rerun({"key": "other"})


def two_lists_for_a_key() -> Evidence:
    batch = Batch(1, [RUN], answers=[[RUN], [OTHER]])
    return evidence(BRIEF, started(batch="b"), *step("a"), COMPLETED, ledger=Ledger(batches={"b": batch}))


GOOD: tuple[Callable[[], Evidence], ...] = (
    family,
    good_detached_child_of_a_step_by_hand,
    good_failure,
    good_event,
    good_call,
    good_patience,
    good_request,
    good_rerun,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    child_twice: "children",
    child_not_there: "children",
    child_of_nobody: "children",
    child_of_another_attempt: "children",
    child_of_another_workflow: "children",
    child_with_another_input: "children",
    child_has_failed_and_is_told_completed: "children",
    child_ended_after_it_was_told: "children",
    child_with_another_output: "children",
    child_goes_on_for_ever: "every run ends",
    detached_child_is_cancelled: "children",
    child_not_listed: "children",
    anothers_child_listed: "children",
    handled_step_without_dead_letter: "dead letters",
    nothing_follows_the_failure: "failure runs",
    two_runs_follow_the_failure: "failure runs",
    failure_reported_otherwise: "failure runs",
    failure_of_nobody: "failure runs",
    acknowledged_event_is_lost: "events",
    event_stored_twice: "events",
    event_answered_with_two_sequences: "events",
    caller_gets_something_else: "calls",
    caller_gets_a_failure: "calls",
    caller_gets_another_run: "calls",
    request_of_nobody: "requests",
    request_without_its_key: "requests",
    request_with_another_header: "requests",
    response_that_nobody_gave: "requests",
    refusal_that_completes: "requests",
    repeated_twice: "reruns",
    repeat_is_lost: "reruns",
    repeated_with_another_input: "reruns",
    two_lists_for_a_key: "bulk all or none",
}
