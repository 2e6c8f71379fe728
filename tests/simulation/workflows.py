"""Workflows with every kind of step that is more than one task of a worker: what a definition of a seed may say of
them. Pure.

Conditions and templates are of the few forms that retelling.py can evaluate on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[Random, list[str]], Fields]

STEPS = (2, 2, 3, 3, 4)
ELEMENTS: tuple[Any, ...] = (1, "${{ run.workflow }}", {"x": 1}, None, "text ${{ run.version }}", [2])

# Those that no seed draws: for stories.
NAP = {"id": "s0", "type": "sleep", "config": {"duration": "2s"}}
SLEEP = {"id": "s1", "type": "sleep", "depends_on": ["s0"], "config": {"duration": "7s"}}
FIXED: tuple[Fields, ...] = ({"name": "asleep", "steps": [NAP, SLEEP]},)


def drawn(chance: Random, name: str) -> Fields:
    """A definition, before it is parsed."""
    steps: list[Fields] = []
    for number in range(chance.choice(STEPS)):
        before = [step["id"] for step in steps]
        depends_on = chance.sample(before, min(len(before), chance.choice((0, 1, 1, 1, 2))))
        fields = chance.choices(KINDS, WEIGHTS)[0](chance, depends_on)
        step = {"id": f"s{number}", "depends_on": depends_on, **fields}
        if chance.random() < 0.2:
            step["when"] = _condition(chance, depends_on)
        steps.append(step)
    return {
        "name": name,
        "version": "1",
        "steps": steps,
        "default_retry": _retry(chance),
        "timeout": chance.choice((None, None, None, None, "20s")),
        "sticky": chance.choice((None, None, None, None, "soft", "hard")),
    }


def _task(chance: Random, depends_on: list[str]) -> Fields:
    fields: Fields = {
        "type": "normal",
        "task": chance.choice(("t", "u")),
        "timeout": chance.choice((None, None, "1s", "4s")),
    }
    if chance.random() < 0.5:
        fields["with"] = _input(chance, depends_on)
    return fields


def _sleep(chance: Random, depends_on: list[str]) -> Fields:
    until = chance.choice(("2020-01-01T00:00:00Z", "${{ 1790000005000 }}", "2026-09-21T14:13:28Z"))
    duration = chance.choice(("200ms", "700ms", "3s", "7s", "${{ run.version + 's' }}"))
    return {"type": "sleep", "config": {"until": until} if chance.random() < 0.25 else {"duration": duration}}


def _map(chance: Random, depends_on: list[str]) -> Fields:
    items = chance.choice((list(ELEMENTS[: chance.choice((0, 1, 2, 3, 3, 6))]), "${{ [1, 2, run.version] }}"))
    fields: Fields = {
        "type": "map",
        "task": chance.choice(("t", "u")),
        "timeout": chance.choice((None, None, "1s", "4s")),
        "config": {"items": items, **_elements(chance)},
    }
    if chance.random() < 0.4:
        fields["with"] = {"e": "${{ item }}", "i": "${{ index }}"}
    if chance.random() < 0.3:
        fields["retry"] = _retry(chance)
    return fields


def _elements(chance: Random) -> Fields:
    """How the elements of a map are carried out."""
    fields: Fields = {}
    if chance.random() < 0.5:
        fields["max_concurrency"] = chance.choice((1, 2))
    if chance.random() < 0.5:
        fields["on_item_failure"] = chance.choice(("fail", "continue", "continue"))
    return fields


def _condition(chance: Random, depends_on: list[str]) -> str:
    general = ("false", "true", "run.version == '1'")
    if not depends_on or chance.random() < 0.2:
        return chance.choice(general)
    step_id, about = chance.choice(depends_on), chance.choice(("status == 'completed'", "output.x == 1"))
    return f"steps.{step_id}.{about}"


def _input(chance: Random, depends_on: list[str]) -> Any:
    given: Fields = {"of": "${{ run.workflow }}", "n": [1, "${{ run.version }}"]}
    for step_id in depends_on:
        given[step_id] = f"${{{{ steps.{step_id}.{chance.choice(('status', 'output'))} }}}}"
    return given


def _retry(chance: Random) -> Fields:
    return {
        "max_attempts": chance.choice((0, 1, 2)),
        "strategy": chance.choice(("fixed", "exponential")),
        "initial_delay": chance.choice(("0s", "0s", "500ms", "3s")),
        "max_delay": "5s",
    }


KINDS: tuple[Draw, ...] = (_task, _sleep, _map)
WEIGHTS = (3, 2, 3)
