"""What begins a step that has expressions: they are evaluated with the run's payloads, and its kind does the rest.

It happens where the commands are carried out, because a payload may be only in the history. It is pure: whoever
evaluates again, after a crash for example, gets the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import orjson
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from penstock.engine.definition.durations import text
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.places import WHEN
from penstock.engine.expressions.scope import References, all_references
from penstock.engine.expressions.template import Template
from penstock.engine.run.commands import AppendEvent, BeginStep, Command, DispatchTask, StartChild
from penstock.engine.run.event_payloads import NULL, Failure, StepFacts
from penstock.engine.run.events import StepFailed, StepSkipped, StepStarted
from penstock.engine.run.execution.inputs import output_of, step_input
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.workflow import Evaluated, StepPlan, Workflow
from penstock.engine.times import instant, rfc3339

Ready: TypeAlias = Mapping[str, Raw | ExpressionFailed]
"""Results of expressions, by their place in the step, that were evaluated elsewhere because they may take long."""

NOT_READY: Ready = {}
NOTHING = References()
INPUT, DEFAULT, ITEM = "input", "default", "item"


def begin_step(
    workflow: Workflow,
    run: Run,
    command: BeginStep,
    payloads: Mapping[str, Raw],
    ready: Ready = NOT_READY,
    history_age_s_max: float | None = None,
) -> Sequence[Command]:
    """The commands that begin the execution, or that say why it is skipped or has failed; none where it is not wanted
    any more. `payloads` are those that `needed` has named, `ready` what was evaluated elsewhere. A step that would
    sleep or wait for longer than `history_age_s_max`, the time for which events are kept, fails."""
    step = run.step(command.step_id)
    if not is_due(run, step, command):
        return []
    plan = workflow.plan_of(command.step_id)
    assert plan is not None, "the step is there"
    queued = step.status is StepStatus.QUEUED  # else a worker has begun it: what runs goes on
    if run.pause is not None and queued and plan.kind.held(plan, step, command.at) is step:
        return []
    try:
        if not applies(plan, run, payloads, ready):
            return [AppendEvent(skipped(run, command))]
        begun = plan.kind.begin(workflow, run, plan, command.at, evaluated(plan, run, payloads, ready))
        _check_kept(begun, command.at, history_age_s_max)
        return begun
    except ExpressionFailed as error:
        return [AppendEvent(failed_to_begin(run, plan, command, str(error)))]


def _check_kept(begun: Sequence[Command], at: float, history_age_s_max: float | None) -> None:
    """Raises ExpressionFailed for a sleep or a wait that would end after the run's events are gone."""
    match begun:
        case [AppendEvent(event=StepStarted(payload=StepFacts() as facts))] if history_age_s_max:
            end = facts.wake_at or facts.until
            if end is not None and instant(end) - at > history_age_s_max:
                kept = f"longer than history_max_age ({text(history_age_s_max)}) keeps the run's events"
                raise ExpressionFailed(f"it would {'sleep' if facts.wake_at else 'wait'} until {end}, which is {kept}")


def is_due(run: Run, step: StepState, command: BeginStep) -> bool:
    """Whether the execution that was ordered is still to begin."""
    ordered = (command.attempt, command.iteration)
    queued = step.status is StepStatus.QUEUED and step.due is None
    begun = step.status is StepStatus.RUNNING and command.again > 0  # its task may have been withdrawn
    is_it = (step.attempts, step.iteration) == ordered
    return is_it and (queued or begun) and not run.failing and not run.ended


def needed(run: Run, plan: StepPlan) -> dict[str, Value]:
    """The payloads that beginning the step reads: `input`, `default` (the step's default input), or `steps.<id>`, the
    output of a step. An element of a map reads its `item`, too (kinds/map.py)."""
    reads = all_references(_references(plan)) if plan.expressions else NOTHING
    found = needed_by(run, plan, reads)
    if plan.item is None and plan.handles is None and (DEFAULT in reads.names or plan.kind.reads_default):
        found[DEFAULT] = step_input(run, plan, run.step(plan.id))
    return found


def needed_by(run: Run, plan: StepPlan | None, reads: References) -> dict[str, Value]:
    """As `needed`, of what is common to all expressions: `input` and `steps.<id>`; `plan` is None for those of the
    workflow."""
    own = {} if plan is None else plan.names
    found: dict[str, Value] = {}
    if INPUT in reads.names:
        found[INPUT] = run.input if run.input_at is None else run.input_at
    return found | {f"steps.{other}": output_of(run, own.get(other, other)) for other in reads.outputs}


def given_input(workflow: Workflow, run: Run, plan: StepPlan, payloads: Mapping[str, Raw]) -> Value:
    """The input of the step's task. Raises ExpressionFailed."""
    begun = plan.kind.begin(workflow, run, plan, 0.0, evaluated(plan, run, payloads))
    return next((command.input for command in begun if isinstance(command, DispatchTask | StartChild)), NULL)


def received(workflow: Workflow, run: Run, plan: StepPlan, payloads: Mapping[str, Raw]) -> Value:
    """What the execution was given: the input of its task, the default input of a step without one. Null where an
    expression of its own fails."""
    default = NULL if plan.handles is not None else step_input(run, plan, run.step(plan.id))
    if not plan.evaluates:
        return default
    try:
        values = evaluated(plan, run, payloads)
    except ExpressionFailed:
        return NULL
    try:
        begun = plan.kind.begin(workflow, run, plan, 0.0, values)
    except ExpressionFailed:  # a value that its kind refuses
        return default
    return next((command.input for command in begun if isinstance(command, DispatchTask | StartChild)), default)


def about_failure(run: Run, step_id: str, given: Raw) -> Raw:
    """The default input of the handler of a failed step, which was given that input."""
    step = run.steps[step_id]
    about = {"step": step_id, "error": step.error, "input": orjson.Fragment(bytes(given)), "attempts": step.attempts}
    return Raw(orjson.dumps(about))


def about_completion(given: Raw, output: Raw) -> Raw:
    """The default input of what undoes a step with that input and output."""
    return Raw(orjson.dumps({"input": orjson.Fragment(bytes(given)), "output": orjson.Fragment(bytes(output))}))


def first_given(run: Run, plan: StepPlan) -> Run:
    """The run as it was when a loop began: the step is given its own input, and not that of its last iteration."""
    step = run.step(plan.id)
    if plan.item is not None or (step.carried_at is None and isinstance(step.carried, UnsetType)):
        return run
    return replace(run, steps={**run.steps, plan.id: replace(step, carried=UNSET, carried_at=None)})


def refused(run: Run, command: BeginStep, error: str) -> StepFailed:
    """The event that says that what begins the execution cannot be sent."""
    return StepFailed(
        run_id=run.run_id,
        step_id=command.step_id,
        timestamp=rfc3339(command.at),
        attempt_number=command.attempt,
        payload=Failure(error=error, failure_type="non_retriable"),
    )


def _references(plan: StepPlan) -> Iterator[References]:
    return (expression.references for expression in plan.expressions.values())


def heavy(plan: StepPlan, run: Run, payloads: Mapping[str, Raw]) -> dict[str, tuple[Expression | Template, Values]]:
    """The expressions of the step that may take more than about 10 ms, by their place, with what they read."""
    most = 2 * sum(memoryview(payload).nbytes for payload in payloads.values())  # an item is the default input, too
    found = {}
    for path, what in plan.expressions.items():
        if what.may_be_heavy(most):  # mostly not: then the values need not be put together
            values = names_of(run, plan, what.references, payloads)
            if what.is_heavy(values):
                found[path] = what, values
    return found


def _result(result: Raw | ExpressionFailed) -> Raw:
    if isinstance(result, ExpressionFailed):
        raise result
    return result


def applies(plan: StepPlan, run: Run, payloads: Mapping[str, Raw], ready: Ready) -> bool:
    """Whether the step's condition holds, or it has none. Raises ExpressionFailed."""
    condition = plan.expressions.get(WHEN.path)
    assert condition is None or isinstance(condition, Expression)
    if condition is not None and WHEN.path in ready:
        return condition.truth(orjson.loads(bytes(_result(ready[WHEN.path]))))
    return condition is None or condition.holds(names_of(run, plan, condition.references, payloads))


def evaluated(plan: StepPlan, run: Run, payloads: Mapping[str, Raw], ready: Ready = NOT_READY) -> Evaluated:
    """The values of the step's expressions, but for its condition. Raises ExpressionFailed."""
    values = {name: payloads[name] for name in (DEFAULT, ITEM) if name in payloads}
    for path, expression in plan.expressions.items():
        if path in ready and path != WHEN.path:
            values[path] = _result(ready[path])
        elif path != WHEN.path:
            values[path] = Raw(expression.json(names_of(run, plan, expression.references, payloads)))
    return values


def names_of(run: Run, plan: StepPlan, references: References, payloads: Mapping[str, Raw]) -> Values:
    """What the names of an expression stand for: only those that it reads."""
    given = payloads if plan.item is None else {**payloads, DEFAULT: payloads[ITEM], "index": plan.item}
    values: dict[str, Any] = {name: given[name] for name in references.names & given.keys()}
    if "run" in references.names:
        values["run"] = about(run)
    steps: dict[str, dict[str, Any]] = {}
    for step_id in references.outputs:
        steps.setdefault(step_id, {})["output"] = payloads[f"steps.{step_id}"]
    for step_id in references.statuses:
        steps.setdefault(step_id, {})["status"] = run.steps[plan.names.get(step_id, step_id)].status.value
    if steps:
        values["steps"] = steps
    return Values(values)


def about(run: Run) -> dict[str, Any]:
    """What `run` stands for in expressions."""
    return {
        "id": run.run_id,
        "workflow": run.workflow_id,
        "version": run.version,
        "labels": run.labels or {},
        "created_at": run.created_at,
    }


def skipped(run: Run, command: BeginStep) -> StepSkipped:
    """The event that says that the step's condition does not hold."""
    return StepSkipped(
        run_id=run.run_id, step_id=command.step_id, timestamp=rfc3339(command.at), attempt_number=command.attempt
    )


def failed_to_begin(run: Run, plan: StepPlan, command: BeginStep, error: str) -> StepFailed:
    """The event that says that an expression of the step fails."""
    return StepFailed(
        run_id=run.run_id,
        step_id=command.step_id,
        timestamp=rfc3339(command.at),
        attempt_number=command.attempt,
        iteration=command.iteration or None,
        item=plan.item,
        payload=Failure(error=error, failure_type="non_retriable"),
    )
