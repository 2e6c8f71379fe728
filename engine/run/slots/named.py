"""Which limits a definition names, and what of them another workflow has registered otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from penstock.engine.definition import durations
from penstock.engine.definition.definitions import Step, WorkflowDef, has_limits
from penstock.engine.definition.identifiers import quoted
from penstock.engine.limits.configs import Configs, RegisteredLimit
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed

KIND_TEXTS: Mapping[LimitKind, str] = {
    LimitKind.RUNS: "concurrency of runs",
    LimitKind.EXECUTIONS: "concurrency of executions",
    LimitKind.RATE: "rate_limit",
}


class NamedLimit(Struct, frozen=True):
    """A limit that a workflow names, or a step of it."""

    kind: LimitKind
    scope: str
    allowed: Allowed
    step_id: str | None = None

    @property
    def place(self) -> tuple[LimitKind, str]:
        return self.kind, self.scope


def named_limits(definition: WorkflowDef) -> list[NamedLimit]:
    """All of them, as the definition has them: those of the workflow first."""
    found = list(_of(definition, definition.name, LimitKind.RUNS, None)) if has_limits(definition) else []
    for step in definition.steps:
        if has_limits(step):
            found += _of(step, f"{definition.name}.{step.id}", LimitKind.EXECUTIONS, step.id)
    return found


def other_values(definition: WorkflowDef, configs: Configs) -> Iterator[str]:
    """A sentence for each limit that a neighbour, another workflow or a step before it, gives another value."""
    before: dict[tuple[LimitKind, str], NamedLimit] = {}
    for one in named_limits(definition):
        config = configs.get(one.place)
        own = before.setdefault(one.place, one)
        if own.allowed != one.allowed:
            yield _differs(one, _called(own.step_id), own.allowed)
            before[one.place] = one
        for other in () if config is None else config.others(definition.name):
            if other.allowed != one.allowed:
                yield _differs(one, f"workflow {quoted(other.workflow)}{_of_step(other)}", other.allowed)
                break
        if config is not None and config.override is not None:
            yield f"{_label(one)}: {allowed_text(config.override.allowed)} counts now, because it is overridden"


def allowed_text(allowed: Allowed) -> str:
    """`5`, `5 in 1s`, or `5 in 1s, burst 10`."""
    if allowed.per_s is None:
        return str(allowed.limit)
    rate = f"{allowed.limit} in {durations.text(allowed.per_s)}"
    return rate if allowed.burst is None else f"{rate}, burst {allowed.burst}"


def _of(owner: WorkflowDef | Step, default: str, kind: LimitKind, step_id: str | None) -> Iterator[NamedLimit]:
    for held in owner.concurrency:
        yield NamedLimit(kind, held.scope or default, Allowed(held.limit), step_id)
    for rate in owner.rate_limit:
        allowed = Allowed(rate.limit, durations.parse(rate.per), rate.burst)
        yield NamedLimit(LimitKind.RATE, rate.scope or default, allowed, step_id)


def _differs(one: NamedLimit, neighbour: str, allowed: Allowed) -> str:
    value, own = allowed_text(allowed), allowed_text(one.allowed)
    return f"{_label(one)}: {neighbour} has registered {value} for the same scope; {own} counts from now on, for both"


def _label(one: NamedLimit) -> str:
    owner = "" if one.step_id is None else f"step {quoted(one.step_id)}: "
    return f"{owner}{KIND_TEXTS[one.kind]} of scope {quoted(one.scope)}"


def _called(step_id: str | None) -> str:
    return "the workflow itself" if step_id is None else f"step {quoted(step_id)}"


def _of_step(other: RegisteredLimit) -> str:
    return "" if other.step_id is None else f" (step {quoted(other.step_id)})"
