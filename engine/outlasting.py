"""Waits in a definition that are longer than the events of its runs are kept: such a run could not go on after them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.config.limits import SLEEP_S_MAX
from penstock.engine.definition.definitions import Retry
from penstock.engine.definition.durations import parse, text
from penstock.engine.definition.forms import Document
from penstock.engine.definition.identifiers import label_of
from penstock.engine.run.execution.retry import longest_delay_s
from penstock.engine.run.plans import policy_of

# By the type of the step, the fields of `config` that say how long it waits, without anybody at work.
WAITS = {"sleep": "duration", "wait_for_event": "timeout", "approval": "timeout"}


def outlasting(workflow: Document, age_s_max: float) -> Iterator[str]:
    """One sentence for each wait that is longer than `age_s_max`, with its step and field; also of a definition with
    other problems."""
    kept = f"is longer than history_max_age ({text(age_s_max)}) keeps the run's events"
    for place in _delays("default_retry", workflow, age_s_max):
        yield f"{place} {kept}"
    steps = workflow.get("steps", [])
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        for place in (*_waits(step, age_s_max), *_of_step(step, age_s_max)):
            yield f"{label_of(index, step)}: {place} {kept}"


def _waits(step: Document, age_s_max: float) -> Iterator[str]:
    field, config = WAITS.get(str(step.get("type"))), step.get("config")
    given = config.get(field) if field and isinstance(config, dict) else None
    if age_s_max < _seconds(given) <= SLEEP_S_MAX:
        yield f"config: {field} {given}"
    elif step.get("type") == "approval" and not given and _seconds(step.get("timeout")) > age_s_max:
        yield f"timeout {step['timeout']}"


def _of_step(step: Document, age_s_max: float) -> Iterator[str]:
    yield from _delays("retry", step, age_s_max)
    for field in ("on_failure", "compensate"):
        if isinstance(handler := step.get(field), dict):
            yield from (f"{field}: {delay}" for delay in _delays("retry", handler, age_s_max))


def _delays(field: str, within: Document, age_s_max: float) -> Iterator[str]:
    try:
        delay_s = longest_delay_s(policy_of(msgspec.convert(within.get(field), Retry)))
    except (msgspec.ValidationError, ValueError):  # none, or reported already
        return
    if delay_s > age_s_max:
        yield f"{field}: its longest delay, {text(delay_s)},"


def _seconds(duration: object) -> float:
    """Of a constant duration; 0 for anything else."""
    try:
        return parse(duration) if isinstance(duration, str | int) else 0.0
    except ValueError:  # a template, or reported already
        return 0.0
