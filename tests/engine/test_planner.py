"""Planners: what they may plan, when their steps begin, and what their dependents receive."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.engine.run.commands import DispatchTask, ExpandPlan, WithdrawTask
from penstock.engine.run.events import StepFailed
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.state import Run, RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.validation import problems
from tests.engine.build import Play, inputs, only, started, step, value, workflow

BIG = "x" * OUTPUT_INLINE_BYTES_MAX
SELF = {"id": "p", "type": "planner", "task": "PLAN"}


def planner(step_id: str, *depends_on: str, config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return step(step_id, *depends_on, type="planner", **fields, **({} if config is None else {"config": config}))


def played(**config: Any) -> Play:
    """A run whose planner `p` stands between `a` and `z`, after `a`."""
    play = Play(workflow(step("a"), planner("p", "a", retries=1, config=config), step("z", "p"), step("beside")))
    play.start({"n": 1})
    play.complete("a", {"from": "a"})
    return play


def plan(play: Play, *steps: dict[str, Any], planner_id: str = "p", **more: Any) -> dict[str, object]:
    """What is ordered once the planner has returned these steps, as step id to input."""
    return inputs(play.carry_out(play.complete(planner_id, {"steps": list(steps), **more}, attempt=None)))


def refused(play: Play, *steps: dict[str, Any], planner_id: str = "p") -> str:
    """Why these steps are refused."""
    before = play.step(planner_id).attempts
    play.carry_out(play.complete(planner_id, {"steps": list(steps)}, attempt=None))
    assert play.step(planner_id).attempts == before + 1 or play.step(planner_id).status is StepStatus.FAILED
    error = play.step(planner_id).error
    assert error is not None
    return error


def output(play: Play, step_id: str) -> object:
    return value(play.whole(output_of(play.run, step_id)))


def test_dependents_of_the_planner_wait_for_the_last_planned_step() -> None:
    play = played()

    assert plan(play, step("x"), step("y", "x")) == {"p.x": {"n": 1}}
    assert play.statuses() == {
        "a": "completed", "p": "running", "z": "pending", "beside": "queued", "p.x": "queued", "p.y": "pending",
    }  # fmt: skip
    assert inputs(play.complete("p.x", "X")) == {"p.y": "X"}
    assert inputs(play.complete("p.y", "Y", attempt=None)) == {"z": "Y"}
    assert play.step("p").status is StepStatus.COMPLETED


def test_several_last_outputs_are_an_object_by_the_ids_of_the_plan() -> None:
    play = played()
    plan(play, step("x"), step("y", "a"))

    assert inputs(play.complete("p.y", 2)) == {}
    assert inputs(play.complete("p.x", 1)) == {"z": {"x": 1, "y": 2}}


@pytest.mark.parametrize("count", [1, 2])
def test_large_last_outputs_reach_the_dependents(count: int) -> None:
    play = played()
    plan(play, *(step(f"x{n}") for n in range(count)))
    for n in range(count):
        commands = play.complete(f"p.x{n}", BIG)

    (task,) = only(DispatchTask, commands)
    expected = BIG if count == 1 else {f"x{n}": BIG for n in range(count)}
    assert value(play.whole(task.input)) == output(play, "p") == expected


def test_a_plan_without_steps_gives_null_at_once() -> None:
    play = played()

    assert plan(play) == {"z": None}


def test_a_planned_step_may_name_ancestors_of_the_planner_and_its_own_ids_stand_before_theirs() -> None:
    play = played()
    reads = step("x", "a", **{"with": {"read": "${{ steps.a.output }}"}})

    assert plan(play, step("a"), reads) == {"p.a": {"n": 1}}
    assert inputs(play.carry_out(play.complete("p.a", "inner"))) == {"p.x": {"read": "inner"}}


def test_an_expression_of_a_planned_step_reads_an_ancestor_of_the_planner() -> None:
    play = played()

    assert plan(play, step("x", **{"with": "${{ steps.a.output.from }}"})) == {"p.x": "a"}


def test_a_join_within_a_plan_has_the_ids_of_the_plan() -> None:
    play = played()
    plan(play, step("x"), step("j", "x", "a"))

    assert inputs(play.complete("p.x", 1)) == {"p.j": {"x": 1, "a": {"from": "a"}}}


def test_an_invalid_plan_is_tried_again_with_every_problem_and_then_fails() -> None:
    play = played()
    error = refused(play, step("x", "x"), step("y", "missing"), step("y", "beside"), {"id": "t"})
    for problem in ("depends on itself", '"missing", which does not exist', 'duplicate step id "y"', "task is missing",
                    '"beside", which is no ancestor of the planner'):  # fmt: skip
        assert problem in error
    (again,) = only(DispatchTask, play.fire("retry.p", "p", after=5))
    assert (again.attempt, again.previous_error) == (2, error)

    play.carry_out(play.complete("p", {"steps": "none"}, attempt=2))

    assert play.run.status is RunStatus.FAILED
    assert "steps must be an array" in (play.run.error or "")
    assert play.step("p").output_at is None
    assert value(play.step("p").output) == value(play.step("z").output)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([step("x", "y"), step("y", "x")], "depend on each other in a circle"),
        ([step("x", "z")], 'depends on "z", which is no ancestor of the planner'),
        ([step("x", "p")], 'depends on "p", the planner itself'),
        ([planner("q"), step("q.x")], 'has the id of a step of the planner "q"'),
        ([step("x", when="steps.y.output > 1"), step("y")], "y"),
        ([step("x", when="steps.beside.output > 1")], "beside"),
        ([step(f"x{n}") for n in range(501)], "501 entries"),
        ([7], "an object is needed"),
        ([step("x" * 129)], "129 characters"),
        ([step(f"x{n}", metadata={"m": "x" * 1000}) for n in range(300)], "bytes"),
    ],
)
def test_a_hostile_plan_is_refused(steps: list[Any], problem: str) -> None:
    play = played()

    assert problem in refused(play, *steps)
    assert not play.run.fragments


@pytest.mark.parametrize("output_", [None, [], "x", {"steps": None}, {"steps": [], "more": 1}, 7])
def test_an_output_that_is_no_plan_is_refused(output_: object) -> None:
    play = played()
    play.carry_out(play.complete("p", output_))

    assert (play.step("p").status, play.step("p").attempts) == (StepStatus.QUEUED, 2)


@pytest.mark.parametrize(
    ("config", "steps", "problem"),
    [
        ({"allowed_tasks": ["T"]}, [step("x", task="other")], 'task "other" is none of allowed_tasks of "p"'),
        ({"allowed_tasks": ["T"]}, [step("x", type="map", task="other")], 'task "other" is none of allowed_tasks'),
        ({"allowed_tasks": ["T"]}, [step("x", task="T", on_failure={"task": "other"})], 'task "other" is none of'),
        ({"allowed_tasks": ["T"]}, [planner("q", task="other")], 'task "other" is none of allowed_tasks'),
        ({"allowed_tasks": ["T"]}, [{"id": "x", "type": "http", "config": {"url": "http://x"}}], 'type "http" is none'),
        ({"allowed_types": ["normal"]}, [{"id": "x", "type": "sleep", "config": {"duration": "1s"}}], 'type "sleep"'),
        ({"max_steps": 1}, [step("x"), step("y")], "max_steps of the planner"),
        ({"max_depth": 1}, [planner("q")], "max_depth of the planner"),
    ],
)
def test_a_plan_keeps_to_the_bounds_of_its_planner(config: Any, steps: list[Any], problem: str) -> None:
    assert problem in refused(played(**config), *steps)


def test_an_inner_planner_keeps_to_the_bounds_of_the_outer_one() -> None:
    play = played(allowed_tasks=["T", "Q"], max_steps=3)
    plan(play, planner("q", task="Q", retries=9), step("after", "q", task="T"))

    assert 'none of allowed_tasks of "p"' in refused(play, step("x", task="other"), planner_id="p.q")
    play.fire("retry.p.q", "p.q", after=5)
    assert "makes it 4" in refused(play, step("x", task="T"), step("y", task="T"), planner_id="p.q")
    play.fire("retry.p.q", "p.q", after=5)
    assert plan(play, step("x", task="T"), planner_id="p.q") == {"p.q.x": {"n": 1}}
    assert inputs(play.complete("p.q.x", "X")) == {"p.after": "X"}
    assert inputs(play.complete("p.after", "Y")) == {"z": "Y"}


def test_an_inner_plan_may_name_ancestors_of_both_planners() -> None:
    play = played()
    plan(play, step("x"), planner("q", "x"), step("beside_q"))
    play.complete("p.x", "X")

    assert plan(play, step("j", "x", "a"), planner_id="p.q") == {"p.q.j": {"x": "X", "a": {"from": "a"}}}


def test_a_planner_that_plans_itself_for_ever_fails_and_says_why() -> None:
    """Each plan is the planner again, under its own name."""
    play = started(workflow(planner("p", retries=1)))
    ahead = ["p"]
    while play.run.status is RunStatus.RUNNING and play.step(ahead[-1]).attempts <= 2:
        step_id = ahead[-1]
        play.carry_out(play.complete(step_id, {"steps": [planner("p")]}, attempt=play.step(step_id).attempts))
        if step_id in play.run.fragments:
            ahead.append(f"{step_id}.p")
        elif (due := play.step(step_id).due) is not None:
            play.carry_out(play.fire(f"retry.{step_id}", step_id, 2, after=due - play.now))

    assert ahead == ["p", "p.p", "p.p.p"]
    assert play.run.status is RunStatus.FAILED
    assert "planners stand in one another 3 deep at the most" in (play.run.error or "")


def test_planners_stand_in_one_another_three_deep_at_the_most() -> None:
    play = played()
    plan(play, planner("q"))
    plan(play, planner("q"), planner_id="p.q")

    assert "a planner cannot stand here" in refused(play, planner("q"), planner_id="p.q.q")


def test_a_run_has_five_hundred_planned_steps_at_the_most() -> None:
    play = played()
    plan(play, planner("q"), *(step(f"x{n}") for n in range(300)))

    assert "501 planned steps" in refused(play, *(step(f"y{n}") for n in range(200)), planner_id="p.q")


def test_a_planned_step_is_retried_and_its_failure_fails_the_run() -> None:
    play = played()
    plan(play, step("x", retries=1), step("y", "x"))
    play.fail("p.x")
    assert [("p.x", 2)] == [
        (task.step_id, task.attempt) for task in only(DispatchTask, play.fire("retry.p.x", "p.x", after=5))
    ]
    play.fail("p.x", attempt=2)
    play.settle()

    assert play.run.status is RunStatus.FAILED
    assert play.statuses()["p"] == "cancelled"


def test_a_planned_step_recovers_by_its_handler() -> None:
    play = played()
    plan(play, step("x"), step("y", "x", on_failure={"task": "H", "with": "${{ steps.x.output }}"}))
    play.complete("p.x", "X")

    assert inputs(play.carry_out(play.fail("p.y"))) == {"p.y.on_failure": "X"}
    assert inputs(play.complete("p.y.on_failure", "H")) == {"z": "H"}


def test_a_cancelled_run_withdraws_what_was_planned() -> None:
    play = played()
    plan(play, step("x"), step("y", "x"))

    assert "X" in {command.task for command in only(WithdrawTask, play.cancel())}
    assert play.statuses() == {
        "a": "completed", "p": "cancelled", "z": "cancelled", "beside": "cancelled", "p.x": "cancelled",
        "p.y": "cancelled",
    }  # fmt: skip


def test_a_resumed_run_keeps_the_fragment() -> None:
    play = played()
    plan(play, step("x"), step("y", "x"))
    play.complete("p.x", "X")
    play.fail("p.y")
    play.settle()

    assert "p" not in (resumed := inputs(play.resume()))
    assert resumed["p.y"] == "X"
    assert play.step("p").status is StepStatus.RUNNING
    assert inputs(play.complete("p.y", "Y", attempt=None)) == {"z": "Y"}


def test_late_words_of_the_planners_worker_change_nothing() -> None:
    play = played()
    (check,) = only(ExpandPlan, play.complete("p", {"steps": [step("x")]}))
    before = play.run
    play.tell(StepFailed(run_id=play.run_id, step_id="p", attempt_number=1, worker_id="w"))
    assert play.step("p") == before.step("p")
    play.carry_out([check])
    play.complete("p", {"steps": []})

    assert play.statuses()["p.x"] == "queued"
    assert play.step("p").status is StepStatus.RUNNING


def test_the_timeout_of_a_planner_is_over_when_it_has_planned() -> None:
    play = Play(workflow(planner("p", timeout="10s")))
    play.start()
    play.begin("p")
    assert play.step("p").due is not None
    plan(play, step("x"))

    assert play.step("p").due is None


def test_a_plan_that_comes_after_the_timeout_is_not_checked() -> None:
    """The failure of the attempt is on its way then, and is not the result of a check."""
    play = Play(workflow(planner("p", timeout="10s", retries=1)))
    play.start()
    play.begin("p")
    late = play.fire("timeout.p", "p", 1, after=10)
    assert play.complete("p", {"steps": [step("x")]}) == []
    play.carry_out(late)

    state = play.step("p")
    assert (state.status, state.attempts, state.error) == (StepStatus.QUEUED, 2, "step timeout exceeded (10s)")


def test_a_snapshot_keeps_the_fragment() -> None:
    play = played()
    plan(play, step("x", when="input.n == 1", **{"with": {"k": "v"}}), step("y", "x"))
    found: Run = from_snapshot(to_snapshot(play.run))

    assert found == play.run
    assert b"fragments" not in to_snapshot(played().run)


def test_ids_that_a_planned_step_could_have_are_refused() -> None:
    assert 'step "p.x" has the id of a step of the planner "p"' in problems({"name": "w", "steps": [SELF, step("p.x")]})
    assert 'step "p.x.y" has the id of a step of the planner "p"' in problems(
        {"name": "w", "steps": [SELF, step("p.x.y")]}
    )
    assert [] == problems({"name": "w", "steps": [SELF, step("pp.x"), step("px")]})


@pytest.mark.parametrize(
    "config",
    [{"max_steps": 501}, {"max_steps": 0}, {"max_depth": 4}, {"allowed_types": ["none"]}, {"allowed_tasks": "x"}],
)
def test_a_planners_config_is_checked(config: dict[str, Any]) -> None:
    (problem,) = problems({"name": "w", "steps": [{**SELF, "config": config}]})

    assert 'step "p": config: ' in problem


def test_a_plan_that_comes_while_the_run_fails_is_not_checked() -> None:
    play = started(workflow(planner("p"), step("b")))
    play.fail("b", kind="non_retriable")

    assert [] == only(ExpandPlan, play.complete("p", {"steps": [step("x")]}))


@pytest.mark.parametrize("expands_before", [True, False])
def test_a_planner_that_plans_in_a_pause_is_not_asked_again_when_the_run_goes_on(*, expands_before: bool) -> None:
    play = played()
    play.pause_run()
    play.begin("p")
    ordered = play.complete("p", {"steps": [step("x")]})
    if expands_before:
        play.carry_out(ordered)
    after = play.unpause_run()
    later = [] if expands_before else play.carry_out(ordered)

    assert {"beside", "p.x"} == {command.step_id for command in only(DispatchTask, [*after, *later])}
