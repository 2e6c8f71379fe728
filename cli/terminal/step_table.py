"""The steps of a definition as the rows of a table: one column for each thing that any of them says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.engine.definition.definitions import SkipIf, Step

Column: TypeAlias = Callable[[Step], str]


def step_table(steps: Sequence[Step]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows. Columns that are not ALWAYS there are left out where they would be empty."""
    shown = {name: column for name, column in COLUMNS.items() if name in ALWAYS or any(map(column, steps))}
    return list(shown), [[column(step) for column in shown.values()] for step in steps]


def _timeout(step: Step) -> str:
    return step.timeout or str((step.config or {}).get("timeout", ""))


def _condition(step: Step) -> str:
    return step.when or (_skipped_if(step.skip_if) if step.skip_if else "")


def _skipped_if(rule: SkipIf) -> str:
    return f"skipped if {rule.step_id}: {rule.field} {rule.op} {bytes(rule.value).decode()}"


def _handler(step: Step) -> str:
    return ", ".join(f"{field}: {handler.task}" for field, handler in step.handlers())


def _details(step: Step) -> str:
    return ", ".join(_of_config(step.config or {}))


def _of_config(config: Mapping[str, Any]) -> Iterator[str]:
    """What a step does that has no task, in a few words."""
    if "url" in config:
        yield f"{config.get('method', 'GET')} {config['url']}"
    if "correlate" in config:
        yield f"event {config['event']} by {config['correlate']['field']}"
    elif "event" in config:
        yield f"event {config['event']}"
    for name in ("workflow", "duration", "until", "items"):
        if name in config:
            yield f"{name} {config[name]}" if isinstance(config[name], str) else name


COLUMNS: Mapping[str, Column] = {
    "STEP": lambda step: step.id,
    "NAME": lambda step: step.name or "",
    "TASK": lambda step: step.task,
    "TYPE": lambda step: step.type,
    "DEPENDS ON": lambda step: ", ".join(step.depends_on),
    "TIMEOUT": _timeout,
    "DETAILS": _details,
    "WHEN": _condition,
    "HANDLERS": _handler,
    "DESCRIPTION": lambda step: step.description or "",
}
ALWAYS = frozenset({"STEP", "TASK", "TYPE", "DEPENDS ON", "TIMEOUT"})
