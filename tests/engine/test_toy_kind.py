"""A new kind of step is one class and one row in the table: here a step that waits for a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import UNSET, Struct
from msgspec.structs import replace

from penstock.engine.definition import values
from penstock.engine.definition.definitions import Step, from_json, to_json
from penstock.engine.definition.durations import seconds
from penstock.engine.definition.forms import Document, Form, nested
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import STEP, step_type
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.commands import Command, SetTimer, WithdrawTask, WithdrawTimer
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import Record, StepCompleted
from penstock.engine.run.execution.steps import completed
from penstock.engine.run.kinds.base import BaseKind
from penstock.engine.run.kinds.table import KINDS
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, step_timers
from penstock.engine.run.workflow import Advance, Ordered, StepEvent, StepPlan, Workflow
from penstock.engine.validation import parse, problems
from penstock.http.openapi.definitions import components
from tests.engine.build import DIGEST, Play, dispatched, only, step

WAIT = Form(component="WaitConfig", fields={"duration": values.timeout}, required=("duration",))
PAUSE = {"id": "pause", "type": "wait", "depends_on": ["a"], "config": {"duration": 90_000_000_000}}
DEFINITION = {"name": "w", "steps": [step("a"), PAUSE, step("b", "pause")]}


class Waiting(Struct, frozen=True):
    duration_s: float


class Wait(BaseKind):
    """It waits for its duration, and ends earlier by a `step.completed`."""

    name = "wait"
    form = Form(
        component="WaitStep",
        fields={
            "id": values.name,
            "type": step_type("wait"),
            "depends_on": STEP.fields["depends_on"],
            "config": nested(WAIT),
        },
        required=("id", "type", "config"),
        elsewhere=frozenset({"task", "retry"}),
    )

    def check(self, label: str, step: Document, report: Report) -> Document:
        if step.get("depends_on") in (None, []):
            report.add(f"{label}: it waits after another step, and depends on none")
        return step

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        assert step.config is not None
        return replace(plan, task=self.name, config=Waiting(seconds(step.config["duration"]) or 0.0))

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        assert isinstance(plan.config, Waiting)
        step = replace(step, status=StepStatus.RUNNING, due=record.at + plan.config.duration_s)
        return step, [*step_timers(run, plan.id, step)]

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        return [WithdrawTask(plan.task)]

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        if isinstance(event, StepCompleted) and run.steps[plan.id].status is StepStatus.RUNNING:
            return completed(workflow, run, record, plan, event.payload)
        return run, []

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        assert timer is TimerKind.TIMEOUT
        return completed(workflow, run, record, plan, UNSET)


@pytest.fixture(autouse=True)
def _a_row_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "wait", Wait())


@pytest.fixture
def play() -> Play:
    """A run whose step `pause` waits."""
    play = Play(compile_workflow(parse(DEFINITION), DIGEST))
    play.start()
    return play


def test_its_config_is_read_in_normal_form_stored_and_read_back() -> None:
    definition = parse(DEFINITION)

    assert definition.steps[1].config == {"duration": "1m30s"}
    assert from_json(to_json(definition)) == definition


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"config": {}}, "config: duration is missing"),
        ({"config": None}, "config is missing"),
        ({"config": {"duration": "0s"}}, "config: duration must be longer than 0s"),
        ({"depends_on": []}, "it waits after another step, and depends on none"),
        ({"task": "t"}, "task is not for a step of this type"),
    ],
)
def test_a_fault_in_it_is_named(fields: dict[str, object], problem: str) -> None:
    found = problems({**DEFINITION, "steps": [step("a"), {**PAUSE, **fields}]})

    assert found == [f'step "pause": {problem}']


def test_an_unknown_type_is_answered_with_all_that_there_are() -> None:
    [problem] = problems({"name": "w", "steps": [step("a", type="nap")]})

    assert problem == f'step "a": type must be one of {" ".join(KINDS)}, not "nap"'


def test_it_is_described_for_the_openapi_document() -> None:
    found = components(KINDS["wait"].form)

    assert found["WaitStep"]["properties"]["type"] == {"const": "wait"}
    assert found["WaitConfig"]["required"] == ["duration"]


def test_it_starts_with_its_timer_and_no_task(play: Play) -> None:
    commands = play.complete("a")

    assert commands == [SetTimer("timeout.pause", play.now + 90, "pause", 1)]
    assert play.statuses() == {"a": "completed", "pause": "running", "b": "pending"}


def test_its_timer_ends_it_and_its_dependent_begins(play: Play) -> None:
    play.complete("a")

    commands = play.fire("timeout.pause", "pause", 1, after=90)

    assert (play.step("pause").status, dispatched(commands)) == (StepStatus.COMPLETED, [("b", 1)])
    assert play.fire("timeout.pause", "pause", 1) == []


def test_an_event_ends_it_and_its_timer_is_withdrawn(play: Play) -> None:
    play.complete("a")

    commands = play.complete("pause", {"early": True}, after=1)

    assert [timer.timer for timer in only(WithdrawTimer, commands)] == ["timeout.pause"]
    assert dispatched(commands) == [("b", 1)]
    assert play.complete("pause", {"again": True}) == []


def test_a_cancelled_run_withdraws_what_is_out_of_it(play: Play) -> None:
    play.complete("a")

    commands = play.cancel()

    assert [timer.timer for timer in only(WithdrawTimer, commands)] == ["timeout.pause"]
    assert only(WithdrawTask, commands) == [WithdrawTask("wait")]
    assert (play.run.status, play.step("pause").due) == (RunStatus.CANCELLED, None)


def test_a_process_that_does_not_know_the_kind_leaves_it_to_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = parse(DEFINITION)
    monkeypatch.delitem(KINDS, "wait")

    with pytest.raises(NeedsUpgrade, match='step "pause" has type wait'):
        compile_workflow(definition, DIGEST)
