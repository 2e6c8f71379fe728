"""Compiles a definition to the `Workflow` that `advance` takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from penstock.config.limits import RETRY_DELAY_DEFAULT_S
from penstock.engine.definition.definitions import HandlerDef, Retry, Step, WorkflowDef, as_document
from penstock.engine.definition.durations import parse, seconds
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.places import HANDLERS, INPUT, Place, ancestors, scope_of, written
from penstock.engine.expressions.template import Template, compile_template
from penstock.engine.run.kinds.table import HANDLER_KINDS, KINDS
from penstock.engine.run.state import StepState
from penstock.engine.run.workflow import NO_RETRY, ON_FAILURE, RetryPolicy, StepKind, StepPlan, Workflow

NO_METADATA: dict[str, str] = {}
NO_EXPRESSIONS: dict[str, Expression | Template] = {}


def compile_workflow(definition: WorkflowDef, digest: str) -> Workflow:
    """Compile a validated definition. Raises NeedsUpgrade for a kind of step that this version does not know.

    A definition that breaks the rules of validation.py is a programming error.
    """
    dependents: dict[str, list[str]] = {step.id: [] for step in definition.steps}
    for step in definition.steps:
        for dependency in step.depends_on:
            dependents[dependency].append(step.id)
    return Workflow(
        name=definition.name,
        version=definition.version,
        digest=digest,
        steps={step.id: _plan(step, definition, tuple(dependents[step.id])) for step in definition.steps},
        roots=tuple(step.id for step in definition.steps if not step.depends_on),
        terminals=tuple(step_id for step_id, after in dependents.items() if not after),
        waiting={step.id: StepState.WAITING for step in definition.steps},
        timeout_s=seconds(definition.timeout),
        sticky=definition.sticky,
    )


def compiled_expressions(step: Step, definition: WorkflowDef) -> Mapping[str, Expression | Template]:
    """The expressions of a step of a validated definition, by their place."""
    kind = _kind(step)
    places = (*kind.places, *HANDLERS.values())
    return {**_expressions(step, places, definition, later=False), **_expressions(step, places, definition, later=True)}


def _plan(step: Step, definition: WorkflowDef, dependents: tuple[str, ...]) -> StepPlan:
    skip_if = step.skip_if and msgspec.structs.replace(step.skip_if, value=step.skip_if.value.copy())
    kind = _kind(step)
    timeout_s = seconds(step.timeout)
    plan = StepPlan(
        id=step.id,
        task=step.task,
        depends_on=step.depends_on,
        dependents=dependents,
        retry=_policy(step, definition),
        timeout_s=timeout_s,
        skip_if=skip_if,
        metadata=step.metadata or NO_METADATA,
        group=step.worker_group,
        kind=kind,
        expressions=_expressions(step, kind.places, definition, later=False),
        later=_expressions(step, kind.places, definition, later=True),
        on_failure=None if step.on_failure is None else _handler(step, ON_FAILURE, step.on_failure, definition),
    )
    return plan.kind.compile(step, plan)


def _handler(step: Step, field: str, handler: HandlerDef, definition: WorkflowDef) -> StepPlan:
    """The plan of the execution that follows from the end of the step."""
    declared = handler.retry or definition.default_retry
    place = HANDLERS[field]
    expressions = _expressions(step, (place,), definition, later=True)
    return StepPlan(
        id=f"{step.id}.{field}",
        task=handler.task,
        depends_on=(),
        dependents=(),
        retry=NO_RETRY if declared is None else _resolve(declared),
        timeout_s=seconds(handler.timeout or step.timeout),
        skip_if=None,
        metadata=step.metadata or NO_METADATA,
        group=handler.worker_group or step.worker_group,
        kind=HANDLER_KINDS[field],
        expressions={INPUT.path: expressions[place.path]} if expressions else NO_EXPRESSIONS,
        handles=step.id,
    )


def _expressions(
    step: Step, places: tuple[Place, ...], definition: WorkflowDef, *, later: bool
) -> Mapping[str, Expression | Template]:
    """What must be evaluated when the step begins, or later, compiled."""
    given = [(place, value) for place, value in written(as_document(step), places) if place.later is later]
    if not given:
        return NO_EXPRESSIONS
    before = ancestors(step.id, {other.id: other.depends_on for other in definition.steps})
    return dict(_compiled(given, before))


def _compiled(given: list[tuple[Place, object]], before: frozenset[str]) -> Iterator[tuple[str, Expression | Template]]:
    for place, value in given:
        scope = scope_of(place, before, before)
        if not place.template:
            yield place.path, compile_expression(str(value), scope, "bool" if place.condition else "any")
        else:
            yield place.path, compile_template(value, scope, place.path, secrets=place.secrets)


def _kind(step: Step) -> StepKind:
    if step.type not in KINDS:
        raise NeedsUpgrade(f'step "{step.id}" has type {step.type}, which this version of the service does not know')
    return KINDS[step.type]


def _policy(step: Step, definition: WorkflowDef) -> RetryPolicy:
    declared = step.retry or definition.default_retry
    if declared is not None:
        return _resolve(declared)
    if step.retries is not None:  # short form: this many retries with a fixed delay
        return RetryPolicy(retries=step.retries, initial_s=RETRY_DELAY_DEFAULT_S)
    return NO_RETRY


def _resolve(retry: Retry) -> RetryPolicy:
    return RetryPolicy(
        retry.max_attempts, retry.strategy, parse(retry.initial_delay), seconds(retry.max_delay), retry.multiplier
    )
