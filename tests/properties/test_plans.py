"""Whatever a planner returns is refused with a text, or carried out to the end; and each fold of the log agrees."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.run.advance import fold
from penstock.engine.run.commands import Command, DispatchTask
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from tests.engine.build import Play, only, step, workflow

IDS = st.sampled_from(["a", "b", "x", "y", "q", "q.x", "p", "z"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(IDS | st.just("steps"), inner, max_size=3),
    max_leaves=8,
)
STEP = st.fixed_dictionaries(
    {"id": IDS, "task": st.just("T")},
    optional={
        "depends_on": st.lists(IDS, max_size=2),
        "type": st.sampled_from(["normal", "planner", "map"]),
        "when": st.sampled_from(["true", "false", "steps.a.output != 1", "steps.x.status == 'skipped'"]),
    },
)
OUTPUT = st.fixed_dictionaries({"steps": st.lists(STEP, max_size=4)}) | JUNK


@settings(max_examples=150, deadline=None)
@given(st.lists(OUTPUT, max_size=6))
def test_any_output_of_a_planner_is_refused_or_carried_out(outputs: list[Any]) -> None:
    play = Play(workflow(step("a"), step("p", "a", type="planner", retries=2), step("z", "p")))
    ahead = play.start([1])
    left = list(outputs)
    for _ in range(200):
        tasks = only(DispatchTask, ahead)
        if not tasks and (retry := _retry(play)) is None:
            break
        if tasks:
            ahead.remove(task := tasks[0])
            answer = left.pop(0) if task.step_type == "planner" and left else {"steps": []}
            ahead += _kept(play.carry_out(play.complete(task.step_id, answer, attempt=task.attempt)))
        else:
            ahead += _kept(play.carry_out(play.fire(*retry, after=10)))

    assert play.run.status in (RunStatus.COMPLETED, RunStatus.FAILED)
    assert fold(play.workflow, None, play.log) == play.run
    assert from_snapshot(to_snapshot(play.run)) == play.run


def _kept(commands: list[Command]) -> list[Command]:
    return [*only(DispatchTask, commands)]


def _retry(play: Play) -> tuple[str, str] | None:
    """The timer of a step that waits for its retry."""
    waiting = (key for key, state in play.run.steps.items() if state.due is not None and not play.run.ended)
    return next(((f"retry.{key}", key) for key in waiting), None)
