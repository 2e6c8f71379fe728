"""All kinds of steps. A new kind is a module in this folder and a row here."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.definitions import Step
from penstock.engine.definition.http_requests import TASK
from penstock.engine.run.kinds.agent_loop import AgentLoop
from penstock.engine.run.kinds.approval import ApprovalStep
from penstock.engine.run.kinds.handler import FailureHandler, StepCompensation
from penstock.engine.run.kinds.http import Http
from penstock.engine.run.kinds.map import Map
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.kinds.planner import Planner
from penstock.engine.run.kinds.respond import Respond
from penstock.engine.run.kinds.sleep import Sleep
from penstock.engine.run.kinds.sub_workflow import SubWorkflow
from penstock.engine.run.kinds.wait_for_event import WaitForEvent
from penstock.engine.run.workflow import COMPENSATE, ON_FAILURE, StepKind

ALL: tuple[StepKind, ...] = (
    Normal(),
    AgentLoop(),
    ApprovalStep(),
    Sleep(),
    Map(),
    SubWorkflow(),
    Http(),
    Respond(),
    WaitForEvent(),
    Planner(),
)
KINDS: dict[str, StepKind] = {kind.name: kind for kind in ALL}

# What follows from the end of a step, by the field that says so. No step has these as its `type`.
HANDLER_KINDS: dict[str, StepKind] = {ON_FAILURE: FailureHandler(), COMPENSATE: StepCompensation()}


def task_type(step: Step) -> str:
    """The type of the step's tasks, empty for a step that no worker executes."""
    if step.type == Http.name:
        return TASK
    return "" if step.type == ApprovalStep.name else step.task


def queues(step: Step) -> Iterator[tuple[str, str | None]]:
    """The types of the tasks of the step and of its handlers, each with the worker group (None: without one)."""
    if task := task_type(step):
        yield task, step.worker_group
    yield from ((handler.task, handler.worker_group or step.worker_group) for _, handler in step.handlers())
