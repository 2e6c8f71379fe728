"""Compiles a definition to the `Workflow` that `advance` takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import orjson
from msgspec import UnsetType

from penstock.engine.definition.definitions import FailureRunDef, Step, WorkflowDef, has_limits
from penstock.engine.definition.durations import seconds
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.places import FAILED_RUN, FAILURE_INPUT, FAILURE_LABELS, OF_RUN, ancestors
from penstock.engine.expressions.template import Template, compile_template
from penstock.engine.limits.names import LimitKind
from penstock.engine.run.kinds.table import HANDLER_KINDS, KINDS
from penstock.engine.run.plans import Names, Surroundings, compile_step, compiled_expressions
from penstock.engine.run.slots.plans import compile_slots
from penstock.engine.run.state import StepState
from penstock.engine.run.workflow import FailureRunPlan, StepPlan, Workflow, takes_slots

IN_DEFINITION = Names()


def compile_workflow(definition: WorkflowDef, digest: str) -> Workflow:
    """Compile a validated definition. Raises NeedsUpgrade for a kind of step that this version does not know.

    A definition that breaks the rules of validation.py is a programming error.
    """
    dependents: dict[str, list[str]] = {step.id: [] for step in definition.steps}
    for step in definition.steps:
        for dependency in step.depends_on:
            dependents[dependency].append(step.id)
    around = Surroundings(KINDS, HANDLER_KINDS, definition.default_retry, definition.name)
    slots = compile_slots(definition, definition.name, LimitKind.RUNS, OF_RUN) if has_limits(definition) else None
    steps = {step.id: _plan(step, definition, around, tuple(dependents[step.id])) for step in definition.steps}
    return Workflow(
        name=definition.name,
        version=definition.version,
        digest=digest,
        steps=steps,
        roots=tuple(step.id for step in definition.steps if not step.depends_on),
        terminals=tuple(step_id for step_id, after in dependents.items() if not after),
        waiting={step.id: StepState.WAITING for step in definition.steps},
        timeout_s=seconds(definition.timeout),
        sticky=definition.sticky,
        default_retry=definition.default_retry,
        kinds=KINDS,
        handler_kinds=HANDLER_KINDS,
        on_failure=None if definition.on_failure is None else _failure_run(definition.on_failure),
        slots=slots,
        slots_used=slots is not None or any(map(takes_slots, steps.values())),
    )


def _failure_run(declared: FailureRunDef) -> FailureRunPlan:
    template = labels = None
    if not isinstance(declared.input, UnsetType):
        template = compile_template(orjson.loads(bytes(declared.input)), FAILED_RUN, FAILURE_INPUT)
    if declared.labels:
        labels = compile_template(declared.labels, FAILED_RUN, FAILURE_LABELS)
    return FailureRunPlan(declared.workflow, template, labels)


def expressions_of(step: Step, definition: WorkflowDef) -> Mapping[str, Expression | Template]:
    """The expressions of a step of a validated definition, by their place."""
    return compiled_expressions(step, KINDS, partial(_before, step, definition))


def _plan(step: Step, definition: WorkflowDef, around: Surroundings, dependents: tuple[str, ...]) -> StepPlan:
    return compile_step(step, around, IN_DEFINITION, dependents, partial(_before, step, definition))


def _before(step: Step, definition: WorkflowDef) -> frozenset[str]:
    return ancestors(step.id, {other.id: other.depends_on for other in definition.steps})
