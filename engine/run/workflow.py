"""A definition compiled for `advance`: durations in seconds, edges in both directions, retry policies resolved."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from penstock.config.limits import APPROVAL_TIMEOUT_DEFAULT_S, RETRY_DELAY_DEFAULT_S, RETRY_MULTIPLIER_DEFAULT
from penstock.engine.definition.definitions import Config, Retry, SkipIf, Step, StepType, WorkflowDef
from penstock.engine.definition.durations import parse
from penstock.engine.run.state import StepState

NO_METADATA: dict[str, str] = {}


class RetryPolicy(Struct, frozen=True):
    """`retries` after the first execution; delays in seconds."""

    retries: int
    strategy: str = "fixed"
    initial_s: float = 0.0
    max_s: float | None = None
    multiplier: float = RETRY_MULTIPLIER_DEFAULT


NO_RETRY = RetryPolicy(retries=0)


class Loop(Struct, frozen=True):
    """The bounds of an agent loop; None means no bound."""

    iterations_max: int | None
    duration_s: float | None
    delay_s: float


class Approval(Struct, frozen=True):
    """What a person is asked, and how long."""

    timeout_s: float
    subject: str | None
    description: str | None
    metadata: dict[str, str] | None


class StepPlan(Struct, frozen=True):
    """One step with its neighbours by id; `timeout_s` None means no bound. At most one of `loop` and `approval` is
    there."""

    id: str
    task: str
    depends_on: tuple[str, ...]
    dependents: tuple[str, ...]
    retry: RetryPolicy
    timeout_s: float | None
    skip_if: SkipIf | None
    metadata: dict[str, str]
    group: str | None
    loop: Loop | None = None
    approval: Approval | None = None


class Workflow(Struct, frozen=True):
    """What `advance` knows of a definition. `digest` names the stored definition that this was made of."""

    name: str
    version: str
    digest: str
    steps: Mapping[str, StepPlan]
    roots: tuple[str, ...]
    terminals: tuple[str, ...]
    waiting: dict[str, StepState]
    timeout_s: float | None = None
    sticky: str | None = None


def compile_workflow(definition: WorkflowDef, digest: str) -> Workflow:
    """Compile a validated definition; a definition that breaks the rules of definition/validation.py is a programmer's error."""
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
        timeout_s=_seconds(definition.timeout),
        sticky=definition.sticky,
    )


def _plan(step: Step, definition: WorkflowDef, dependents: tuple[str, ...]) -> StepPlan:
    skip_if = step.skip_if and msgspec.structs.replace(step.skip_if, value=step.skip_if.value.copy())
    config = step.config or Config()
    return StepPlan(
        id=step.id,
        task=step.type if step.type is StepType.APPROVAL else step.task,
        depends_on=step.depends_on,
        dependents=dependents,
        retry=_policy(step, definition),
        timeout_s=None if step.type is StepType.APPROVAL else _seconds(step.timeout),
        skip_if=skip_if,
        metadata=step.metadata or NO_METADATA,
        group=step.worker_group,
        loop=_loop(config) if step.type is StepType.AGENT_LOOP else None,
        approval=_approval(step, config) if step.type is StepType.APPROVAL else None,
    )


def _loop(config: Config) -> Loop:
    return Loop(config.max_iterations, _seconds(config.max_duration), _seconds(config.loop_delay) or 0.0)


def _approval(step: Step, config: Config) -> Approval:
    timeout_s = _seconds(config.timeout or step.timeout) or APPROVAL_TIMEOUT_DEFAULT_S
    return Approval(timeout_s, config.subject, config.description, config.metadata or None)


def _policy(step: Step, definition: WorkflowDef) -> RetryPolicy:
    declared = step.retry or definition.default_retry
    if declared is not None:
        return _resolve(declared)
    if step.retries is not None:  # short for so many retries at one fixed delay
        return RetryPolicy(retries=step.retries, initial_s=RETRY_DELAY_DEFAULT_S)
    return NO_RETRY


def _resolve(retry: Retry) -> RetryPolicy:
    return RetryPolicy(
        retry.max_attempts, retry.strategy, parse(retry.initial_delay), _seconds(retry.max_delay), retry.multiplier
    )


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse(text)
