"""What a valid definition is warned of when it is registered: what is so just now and may be as it should be.

Each row of CHECKS looks at the definition and at what is known of the service at that moment. Pure: who registers
gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from msgspec import Struct

from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.definition.identifiers import quoted
from penstock.engine.expressions.places import ancestors
from penstock.engine.expressions.template import Template
from penstock.engine.limits.configs import Configs
from penstock.engine.run.compiling import expressions_of
from penstock.engine.run.kinds.respond import Respond
from penstock.engine.run.kinds.table import queues
from penstock.engine.run.slots.named import other_values

HTTP_WORKER = "`penstock worker http`, or builtin_workers of `penstock serve`"
STARTING = frozenset({"sub_workflow", "map"})  # kinds with `config.workflow`
STEPS_NAMED_MAX = 3
WARNINGS_MAX = 100


class Facts(Struct, frozen=True):
    """What is known of the service. `served` are the task types that workers serve now, each with the worker group
    (None: without one), `missing` the workflows among `named_in` the definition that are not registered, `limits` what
    is registered of those that it names."""

    served: Collection[tuple[str, str | None]]
    missing: Collection[str] = ()
    limits: Configs = {}


Check: TypeAlias = Callable[[WorkflowDef, Facts], Iterator[str]]


def warnings(definition: WorkflowDef, facts: Facts) -> list[str]:
    """One sentence for each thing that the definition is warned of, at most 100 and one that counts the rest."""
    found = [text for check in CHECKS for text in check(definition, facts)]
    rest = len(found) - WARNINGS_MAX
    return [*found[:WARNINGS_MAX], *([f"{rest} more warnings"] if rest > 0 else [])]


def unserved_tasks(definition: WorkflowDef, served: Collection[tuple[str, str | None]]) -> list[str]:
    """One sentence for each of its task types that is not among those that workers serve, at most 100."""
    return list(_unserved_tasks(definition, Facts(served)))[:WARNINGS_MAX]


def unserved(definition: WorkflowDef, served: Collection[tuple[str, str | None]]) -> list[str]:
    """Those of its task types that are not among those that workers serve, by name."""
    return sorted({task for step in definition.steps for task, group in queues(step) if (task, group) not in served})


def _unserved_tasks(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    steps: dict[tuple[str, str | None], list[str]] = {}
    for step in definition.steps:
        for queue in queues(step):
            steps.setdefault(queue, []).append(step.id)
    for (task, group), step_ids in steps.items():
        if (task, group) not in facts.served:
            of_group = f" of worker group {quoted(group)}" if group else ""
            found = f"no worker{of_group} serves task {quoted(task)} now; it waits for one"
            yield f"{_shown(step_ids)}: {found}{f' ({HTTP_WORKER})' if task == HTTP_TASK else ''}"


def named_in(definition: WorkflowDef) -> set[str]:
    """The other workflows that the definition starts runs of."""
    handler = {definition.on_failure.workflow} if definition.on_failure else set()
    return (handler | _children(definition).keys()) - {definition.name}


def _children(definition: WorkflowDef) -> dict[str, list[str]]:
    """The workflows that steps of the definition start runs of, with the ids of these steps."""
    found: dict[str, list[str]] = {}
    for step in definition.steps:
        child = (step.config or {}).get("workflow") if step.type in STARTING else None
        if isinstance(child, str):
            found.setdefault(child, []).append(step.id)
    return found


def _missing_children(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    for child, step_ids in _children(definition).items():
        if child in facts.missing:
            yield f"{_shown(step_ids)}: workflow {quoted(child)} is not registered now; without it the step fails"


def _missing_handler(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    if definition.on_failure and (name := definition.on_failure.workflow) in facts.missing:
        found = f"workflow {quoted(name)} is not registered now"
        yield f"on_failure: {found}; without it nothing is started when a run fails"


def _risky_expressions(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    """Expressions that may go over a bound with large inputs."""
    for step in definition.steps:
        for place, compiled in expressions_of(step, definition).items():
            before = "" if isinstance(compiled, Template) else f"{place}: "
            yield from (f"step {quoted(step.id)}: {before}{warning}" for warning in compiled.warnings)


def _repeated_responses(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    """Steps that respond when another one has responded before."""
    responding = {step.id for step in definition.steps if step.type == Respond.name}
    if len(responding) < 2:
        return
    graph = {step.id: tuple(step.depends_on) for step in definition.steps}
    for step in definition.steps:
        if step.id in responding and (before := sorted(responding & ancestors(step.id, graph))):
            yield f"step {quoted(step.id)} responds after {_shown(before)}: only the first response of a run counts"


def _other_limits(definition: WorkflowDef, facts: Facts) -> Iterator[str]:
    """Limits to which somebody else has given another value."""
    yield from other_values(definition, facts.limits)


def _shown(step_ids: list[str]) -> str:
    """`step "a"`, or `steps "a", "b" and 3 more`."""
    named = ", ".join(map(quoted, step_ids[:STEPS_NAMED_MAX]))
    more = len(step_ids) - STEPS_NAMED_MAX
    return f"step{'s' if len(step_ids) > 1 else ''} {named}" + (f" and {more} more" if more > 0 else "")


CHECKS: tuple[Check, ...] = (
    _unserved_tasks,
    _missing_children,
    _missing_handler,
    _risky_expressions,
    _repeated_responses,
    _other_limits,
)
