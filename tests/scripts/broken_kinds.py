"""What a storm might leave behind of steps with conditions, of steps without a worker, and between runs: good
histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, History, Sent, Told, ToldStep
from chaos_parts.executions import digest
from chaos_parts.kind_workflows import (
    ANSWER,
    ASKING,
    ASLEEP,
    CALLED,
    CHILD,
    CHOSEN,
    FETCHED,
    GUARDIAN,
    MAPPED,
    MOURNER,
    PARENT,
    PLANNED,
    RESCUED,
    SHORT_S,
    STRICT,
    UNDONE,
    WAITING,
    WARD,
)
from chaos_parts.ledger import Batch, CallAnswer, Ledger, Requested, SentEvent, Start
from chaos_parts.step_account import Seen
from chaos_parts.workflows import BRIEF

from penstock.engine.times import rfc3339
from tests.scripts.broken_promises import (
    BEGIN,
    BRIEFLY,
    COMPLETED,
    OTHER,
    RUN,
    WORKFLOWS,
    event,
    evidence,
    executed,
    keyed,
    started,
    step,
    timer,
    told,
)

MADE = {"by": "me"}
EVEN, ODD = {"by": "me", "even": True}, {"by": "me", "even": False}
ANSWERED = {"order": {"key": "k"}, "number": 0, "name": "k-answer-0"}


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
    items = [ToldStep(status, 1, output=digest(output)) for status, output in _listed().values()]
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
    steps = dict(found.told["snapshot"][RUN].steps)
    results = [{"ok": True, "output": "second"}, {"ok": True, "output": 1}, _BROKEN, {"ok": True, "output": 3}]
    steps["m"] = ToldStep("completed", 1, output=digest(results), items=(4, 3, 1, 0))
    found.told = {"snapshot": {RUN: Told("completed", steps)}}
    return found


def elements_counted_otherwise() -> Evidence:
    found = mapped(*ALL_PIECES)
    steps = dict(found.told["snapshot"][RUN].steps)
    steps["m"] = ToldStep("completed", 1, output=steps["m"].output, items=(4, 4, 0, 0))
    found.told = {"snapshot": {RUN: Told("completed", steps)}}
    return found


def element_listed_otherwise() -> Evidence:
    items = [ToldStep(status, 1, output=digest(output)) for status, output in _listed().values()]
    return mapped(*ALL_PIECES, items={(RUN, "m"): [*items[:3], ToldStep("completed", 1, output=digest("other"))]})


def map_not_listed() -> Evidence:
    return mapped(*ALL_PIECES, items={})


def dead_letter_of_a_tolerated_element() -> Evidence:
    return mapped(*ALL_PIECES, letters=frozenset({(RUN, "m.2")}))


def broken_map(letters: set[tuple[str, str]]) -> Evidence:
    error = 'step "m" failed: element 1 failed: chaos: broken'
    events = (*step("list", PIECES), facts("m", items=4), broken("m.1"), failed(error, "m"))
    return evidence(STRICT, started(key="k"), *events, letters=frozenset(letters))


def element_without_dead_letter() -> Evidence:
    return broken_map(set())


def element_of_a_broken_map() -> Evidence:
    """After the replay an element begins again that had completed."""
    error = 'step "m" failed: element 1 failed: chaos: broken'
    begun = (*step("list", PIECES), facts("m", items=4), *step("m.0", 0), broken("m.1"), failed(error, "m"))
    again = (event("workflow.resumed"), facts("m", 2, items=4), *step("m.0", "again", 2))
    rest = [one for number, attempt in ((1, 2), (2, 2), (3, 2)) for one in step(f"m.{number}", number, attempt)]
    letters = frozenset({(RUN, "m.1")})
    return evidence(STRICT, started(key="k"), *begun, *again, *rest, *step("after"), COMPLETED, letters=letters)


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
    stream = told(*(one for _, events in order for one in events))
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


def child_not_listed() -> Evidence:
    found = family()
    found.children = {RUN: []}
    return found


def anothers_child_listed() -> Evidence:
    found = family()
    found.children = {RUN: [OTHER], OTHER: ["c" * 32]}
    return found


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
    return rescued(*step("a.on_failure"), letters=frozenset({(RUN, "a")}))


BOTH = 'step "a" failed: chaos: doomed; its on_failure failed, too: chaos: broken'


def unrescued(letters: set[tuple[str, str]], follow: list[dict[str, Any]], failure_of: str = RUN) -> Evidence:
    """Its handler has failed, too. What follows are runs with these inputs."""
    events = [started(key="k"), DOOMED_A, broken("a.on_failure"), failed(BOTH, "a")]
    runs = {chr(ord("b") + number) * 32: value for number, value in enumerate(follow)}
    order = [(RUN, events)]
    for run_id, value in runs.items():
        begins = event("workflow.started", payload={"input": value, "failure_of": failure_of})
        order.append((run_id, [begins, *step("a"), COMPLETED]))
    return together(order, {RUN: RESCUED, **dict.fromkeys(runs, MOURNER)}, letters=frozenset(letters))


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


def failure_told_otherwise() -> Evidence:
    return unrescued(BOTH_LETTERS, [{**ABOUT, "error": "chaos: other"}])


def failure_of_nobody() -> Evidence:
    return unrescued(BOTH_LETTERS, [ABOUT], failure_of="f" * 32)


def answer(seq: int, at: float, number: int = 0, key: str = "k") -> Sent:
    return Sent(seq, at, ANSWER, {"order": {"key": key}, "number": number, "name": f"{key}-answer-{number}"})


def received(step_id: str, sent: Sent) -> Seen:
    return event("event.received", step_id, {"event": sent.name, "seq": sent.seq, "body": sent.body})


def asked(
    *sent: Sent, end: Seen | None = None, since_s: float = 0.0, lasts_s: float = 5.0, failure: bool = False
) -> Evidence:
    """A first step that waits; the run was started 1 s after BEGIN."""
    waits = facts("w", event=ANSWER, since=rfc3339(BEGIN + 1 + since_s), until=rfc3339(BEGIN + 1 + since_s + lasts_s))
    last = end or received("w", sent[0])
    error = failed('step "w" failed: no event chaos-answer came within 5s', "w")
    rest = [last, error] if failure else [last, *step("after"), COMPLETED]
    return evidence(
        ASKING, started(key="k"), waits, *rest, events=sent, letters=frozenset({(RUN, "w")} if failure else ())
    )


def good_wait() -> Evidence:
    """Another key's event, and one that is too old, do not count."""
    return asked(
        answer(9, BEGIN + 2, 1),
        answer(7, BEGIN + 0.5, 0),
        answer(8, BEGIN + 1.5, 0, "other"),
        end=received("w", answer(9, BEGIN + 2, 1)),
    )


TOO_LATE = timer("wait.w", 1, BEGIN + 6.1)


def good_deadline() -> Evidence:
    return asked(answer(7, BEGIN + 6.01), end=TOO_LATE, failure=True)


def second_event_ends_it() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0), answer(8, BEGIN + 2.5, 1), end=received("w", answer(8, BEGIN + 2.5, 1)))


def anothers_event_ends_it() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0, "other"))


def event_from_before_the_wait() -> Evidence:
    return asked(answer(7, BEGIN + 0.5))


def event_that_was_never_sent() -> Evidence:
    return asked(end=received("w", answer(7, BEGIN + 2)))


def event_with_another_body() -> Evidence:
    return asked(answer(7, BEGIN + 2, 0), end=received("w", answer(7, BEGIN + 2, 5)))


def deadline_before_the_event() -> Evidence:
    return asked(answer(7, BEGIN + 5.9), end=TOO_LATE, failure=True)


def deadline_too_early() -> Evidence:
    return asked(end=timer("wait.w", 1, BEGIN + 5.5), failure=True)


def wait_begins_late() -> Evidence:
    return asked(answer(7, BEGIN + 3), since_s=0.5)


def wait_ends_late() -> Evidence:
    return asked(answer(7, BEGIN + 3), lasts_s=5.5)


def waited(first: Sent, second: Sent, *sent: Sent) -> Evidence:
    """Two waits, one after the other: the first begins 3 s after BEGIN, when `a` has completed, the second 5 s."""
    waits = [
        facts("w", event=ANSWER, since=rfc3339(BEGIN + 3 - 60), until=rfc3339(BEGIN + 3 + 6)),
        received("w", first),
        facts("again", event=ANSWER, since=rfc3339(BEGIN + 5 - 60), until=rfc3339(BEGIN + 5 + 6)),
        received("again", second),
    ]
    return evidence(
        WAITING, started(key="k"), *step("a"), *waits, *step("after"), COMPLETED, events=[first, second, *sent]
    )


def good_waits() -> Evidence:
    """Both events are from before the run; the second wait passes over the first event, and over the refused one."""
    found = waited(answer(3, BEGIN - 9, 2), answer(5, BEGIN - 7, 1))
    found.events = sorted([*found.events, answer(4, BEGIN - 8, 2)], key=lambda one: one.seq)
    return found


def one_event_for_two_waits() -> Evidence:
    return waited(answer(3, BEGIN - 9, 0), answer(3, BEGIN - 9, 0))


def refused_event_ends_it() -> Evidence:
    return waited(answer(3, BEGIN - 9, 0), answer(4, BEGIN - 8, 2))


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
    return evidence(UNDONE, *UP_TO_DOOM, *rest, letters=frozenset({(RUN, "doom"), (RUN, "m.0.compensate")}), **more)


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
    return together(order, {RUN: GUARDIAN, OTHER: WARD}, letters=frozenset({(RUN, "doom")}))


def good_guard() -> Evidence:
    return guarded(compensate=True)


def child_is_not_undone() -> Evidence:
    return guarded(compensate=False)


OFF = {"compensate": True}


def undone_in_another_order() -> Evidence:
    return undoing(SLOW_ENDS, *UNDO["slow"], *UNDO["m.1"], *UNDO["b"], *UNDO["m.0"], *UNDO["a"], ended())


def undone_before_what_runs_has_ended() -> Evidence:
    return undoing(*UNDO["b"], SLOW_ENDS, *IN_ORDER, ended())


def not_all_is_undone() -> Evidence:
    return undoing(SLOW_ENDS, *IN_ORDER[:-2], ended())


def late_step_is_not_undone() -> Evidence:
    return undoing(SLOW_ENDS, *IN_ORDER[2:], ended())


def failed_without_undoing() -> Evidence:
    return evidence(UNDONE, *UP_TO_DOOM[:-1], ended(None), letters=frozenset({(RUN, "doom")}))


def undone_that_never_completed() -> Evidence:
    fails = event("step.failed", "slow", {"error": "chaos: failed"})
    return undoing(fails, *IN_ORDER, ended())


def undoing_told_otherwise() -> Evidence:
    """One element could not be undone, and the run says that all are."""
    cannot = [event("step.started", "m.0.compensate"), broken("m.0.compensate", "chaos: hopeless")]
    return undoing(SLOW_ENDS, *IN_ORDER[:6], *cannot, *UNDO["a"], ended("completed"))


def undoing_shown_otherwise() -> Evidence:
    found = good_undoing()
    shown = found.told["snapshot"][RUN]
    found.told = {"GET /runs/{id}": {RUN: Told(shown.status, shown.steps, "failed")}}
    return found


def begun_while_undoing() -> Evidence:
    return undoing(event("step.started", "never"), SLOW_ENDS, *IN_ORDER, ended())


def undone_with_another_input() -> Evidence:
    given = executed("b.compensate", {"input": MADE, "output": "other"})
    return undoing(SLOW_ENDS, *IN_ORDER, ended(), executions=[given])


def undoing_announced_otherwise() -> Evidence:
    wrong = event("workflow.compensating", payload={"error": "", "steps": ["a"]})
    letters = frozenset({(RUN, "doom")})
    return evidence(UNDONE, *UP_TO_DOOM[:-1], wrong, SLOW_ENDS, *IN_ORDER, ended(), letters=letters)


def rerun(*values: dict[str, Any], answered: tuple[str, ...] = ()) -> Evidence:
    """RUN has failed, and was repeated by runs with these inputs."""
    runs = {chr(ord("b") + number) * 32: value for number, value in enumerate(values)}
    first = [started(key="k"), broken("a"), failed('step "a" failed: chaos: broken', "a")]
    order = [(RUN, first)]
    for run_id, value in runs.items():
        begins = event("workflow.started", payload={"input": value, "rerun_of": RUN})
        order.append((run_id, [begins, *step("a"), COMPLETED]))
    found = together(order, {RUN: BRIEF, **dict.fromkeys(runs, BRIEF)}, letters=frozenset({(RUN, "a")}))
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
    good_choice,
    good_skip,
    good_sleep,
    good_map,
    family,
    good_plan,
    good_rescue,
    good_failure,
    good_wait,
    good_deadline,
    good_waits,
    good_event,
    good_call,
    good_patience,
    good_request,
    good_undoing,
    good_undoing_that_fails,
    good_undoing_with_late_events,
    good_late_start,
    good_late_retry,
    good_guard,
    good_rerun,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    begun_against_its_condition: "conditions",
    skipped_against_its_condition: "conditions",
    text_not_filled_in: "executions",
    too_short_a_sleep: "sleeps",
    woken_early: "timers in time",
    forgotten_sleep: "every run ends",
    element_missing: "maps",
    outputs_out_of_order: "executions",
    element_before_its_turn: "impossible event",
    element_twice: "told the same",
    elements_counted_otherwise: "told the same",
    element_listed_otherwise: "maps",
    map_not_listed: "maps",
    dead_letter_of_a_tolerated_element: "dead letters",
    element_without_dead_letter: "dead letters",
    element_of_a_broken_map: "impossible event",
    child_twice: "children",
    child_not_there: "children",
    child_of_nobody: "children",
    child_of_another_attempt: "children",
    child_of_another_workflow: "children",
    child_with_another_input: "children",
    child_has_failed_and_is_told_completed: "children",
    child_ended_after_it_was_told: "children",
    child_with_another_output: "children",
    detached_child_is_cancelled: "children",
    child_not_listed: "children",
    anothers_child_listed: "children",
    child_goes_on_for_ever: "every run ends",
    plan_with_other_steps: "impossible event",
    not_waited_for_the_plan: "impossible event",
    planned_step_before_its_turn: "impossible event",
    handler_of_no_failure: "impossible event",
    handler_told_something_else: "executions",
    went_on_before_the_handler: "impossible event",
    dead_letter_of_a_recovered_step: "dead letters",
    handled_step_without_dead_letter: "dead letters",
    nothing_follows_the_failure: "failure runs",
    two_runs_follow_the_failure: "failure runs",
    failure_told_otherwise: "failure runs",
    failure_of_nobody: "failure runs",
    second_event_ends_it: "waits",
    anothers_event_ends_it: "waits",
    event_from_before_the_wait: "waits",
    event_that_was_never_sent: "waits",
    event_with_another_body: "waits",
    deadline_before_the_event: "waits",
    deadline_too_early: "timers in time",
    wait_begins_late: "waits",
    wait_ends_late: "waits",
    one_event_for_two_waits: "waits",
    refused_event_ends_it: "waits",
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
    child_is_not_undone: "children",
    undone_in_another_order: "impossible event",
    undone_before_what_runs_has_ended: "impossible event",
    not_all_is_undone: "every run ends",
    late_step_is_not_undone: "every run ends",
    failed_without_undoing: "every run ends",
    undone_that_never_completed: "impossible event",
    undoing_told_otherwise: "every run ends",
    undoing_shown_otherwise: "told the same",
    begun_while_undoing: "impossible event",
    undone_with_another_input: "executions",
    undoing_announced_otherwise: "impossible event",
    repeated_twice: "reruns",
    repeat_is_lost: "reruns",
    repeated_with_another_input: "reruns",
    two_lists_for_a_key: "bulk all or none",
}
