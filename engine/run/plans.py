"""Compiles one step of a definition, or of a planner's fragment, to the plan that `advance` uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import Struct

from penstock.config.limits import RETRY_DELAY_DEFAULT_S
from penstock.engine.definition.definitions import (
    HandlerDef,
    Retry,
    SkipIf,
    Step,
    as_document,
    has_limits,
    limits_document,
)
from penstock.engine.definition.durations import parse, seconds
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.places import HANDLERS, INPUT, Place, scope_of, written, written_limits
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import Template, compile_template
from penstock.engine.limits.names import LimitKind
from penstock.engine.run.slots.plans import SlotsPlan, compile_slots
from penstock.engine.run.workflow import COMPENSATE, NO_RETRY, ON_FAILURE, RetryPolicy, StepKind, StepPlan

NO_METADATA: dict[str, str] = {}
NO_EXPRESSIONS: dict[str, Expression | Template] = {}


class Surroundings(Struct, frozen=True):
    """What all steps of a definition share: kinds of steps and handlers, the retry policy of those without one, and
    the name of the workflow."""

    kinds: Mapping[str, StepKind]
    handler_kinds: Mapping[str, StepKind]
    default_retry: Retry | None
    workflow: str


class Names(Struct, frozen=True):
    """The ids of steps by what a planner's fragment calls them; in a definition, each has its own id."""

    planner: str | None = None
    full: Mapping[str, str] = {}

    def of(self, name: str) -> str:
        return self.full.get(name, name)


def compile_step(
    step: Step, around: Surroundings, names: Names, dependents: tuple[str, ...], before: Callable[[], frozenset[str]]
) -> StepPlan:
    """The plan of a valid step. `before` gives the steps that its expressions may name, by the names that they use.

    Raises NeedsUpgrade for a kind of step that this version does not know.
    """
    kind = _kind(step, around.kinds)
    plan = StepPlan(
        id=names.of(step.id),
        task=step.task,
        depends_on=tuple(map(names.of, step.depends_on)),
        dependents=dependents,
        retry=_policy(step, around.default_retry),
        timeout_s=seconds(step.timeout),
        skip_if=None if step.skip_if is None else _condition(step.skip_if, names),
        metadata=step.metadata or NO_METADATA,
        group=step.worker_group,
        kind=kind,
        expressions=_expressions(step, kind.places, before, later=False),
        later=_expressions(step, kind.places, before, later=True),
        planner=names.planner,
        names=names.full,
        labels=step.depends_on if names.planner is not None else (),
        on_failure=_handler(step, ON_FAILURE, step.on_failure, around, names, before),
        compensate=_handler(step, COMPENSATE, step.compensate, around, names, before),
        slots=_slots(step, kind, f"{around.workflow}.{names.of(step.id)}", before) if has_limits(step) else None,
    )
    return plan.kind.compile(step, plan)


def _slots(step: Step, kind: StepKind, scope: str, before: Callable[[], frozenset[str]]) -> SlotsPlan | None:
    return compile_slots(step, scope, LimitKind.EXECUTIONS, _scope_of_limits(kind, before))


def _scope_of_limits(kind: StepKind, before: Callable[[], frozenset[str]]) -> Scope:
    return scope_of(Place("", names=kind.names_of_limits), before(), before())


def _handler(
    step: Step,
    field: str,
    handler: HandlerDef | None,
    around: Surroundings,
    names: Names,
    before: Callable[[], frozenset[str]],
) -> StepPlan | None:
    """The plan of the execution that follows from the end of the step; None where nothing does."""
    if handler is None:
        return None
    declared = handler.retry or around.default_retry
    place = HANDLERS[field]
    expressions = _expressions(step, (place,), before, later=True)
    return StepPlan(
        id=f"{names.of(step.id)}.{field}",
        task=handler.task,
        depends_on=(),
        dependents=(),
        retry=NO_RETRY if declared is None else policy_of(declared),
        timeout_s=seconds(handler.timeout or step.timeout),
        skip_if=None,
        metadata=step.metadata or NO_METADATA,
        group=handler.worker_group or step.worker_group,
        kind=around.handler_kinds[field],
        expressions={INPUT.path: expressions[place.path]} if expressions else NO_EXPRESSIONS,
        names=names.full,
        handles=names.of(step.id),
    )


def compiled_expressions(
    step: Step, kinds: Mapping[str, StepKind], before: Callable[[], frozenset[str]]
) -> Mapping[str, Expression | Template]:
    """The expressions of a valid step, by their place."""
    places = (*_kind(step, kinds).places, *HANDLERS.values())
    found = {**_expressions(step, places, before, later=False), **_expressions(step, places, before, later=True)}
    if not has_limits(step):
        return found
    scope = _scope_of_limits(_kind(step, kinds), before)
    of_limits = written_limits(limits_document(step))
    return {**found, **{place.path: compile_expression(str(value), scope) for place, value in of_limits}}


def _condition(condition: SkipIf, names: Names) -> SkipIf:
    return msgspec.structs.replace(condition, step_id=names.of(condition.step_id), value=condition.value.copy())


def _expressions(
    step: Step, places: tuple[Place, ...], before: Callable[[], frozenset[str]], *, later: bool
) -> Mapping[str, Expression | Template]:
    """What must be evaluated when the step begins, or later, compiled."""
    given = [(place, value) for place, value in written(as_document(step), places) if place.later is later]
    return dict(_compiled(given, before())) if given else NO_EXPRESSIONS


def _compiled(given: list[tuple[Place, object]], before: frozenset[str]) -> Iterator[tuple[str, Expression | Template]]:
    for place, value in given:
        scope = scope_of(place, before, before)
        if not place.template:
            yield place.path, compile_expression(str(value), scope, "bool" if place.condition else "any")
        else:
            yield place.path, compile_template(value, scope, place.path, secrets=place.secrets)


def _kind(step: Step, kinds: Mapping[str, StepKind]) -> StepKind:
    if step.type not in kinds:
        raise NeedsUpgrade(f'step "{step.id}" has type {step.type}, which this version of the service does not know')
    return kinds[step.type]


def _policy(step: Step, default_retry: Retry | None) -> RetryPolicy:
    declared = step.retry or default_retry
    if declared is not None:
        return policy_of(declared)
    if step.retries is not None:  # short form: this many retries with a fixed delay
        return RetryPolicy(retries=step.retries, initial_s=RETRY_DELAY_DEFAULT_S)
    return NO_RETRY


def policy_of(retry: Retry) -> RetryPolicy:
    return RetryPolicy(
        retry.max_attempts, retry.strategy, parse(retry.initial_delay), seconds(retry.max_delay), retry.multiplier
    )
