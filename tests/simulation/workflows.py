"""Workflows with every kind of step that is more than one task of a worker: what a definition of a seed may say of
them. Pure.

Conditions and templates are of the few forms that `retold/templates.py` can evaluate on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]
Draw: TypeAlias = Callable[[Random, list[str]], Fields]

UNDOING = 0.4  # of the definitions
STEPS = (2, 2, 3, 3, 4)
ELEMENTS: tuple[Any, ...] = (1, "${{ run.workflow }}", {"x": 1}, None, "text ${{ run.version }}", [2])

NO_RETRY = {"max_attempts": 0}
ONE_TASK = {"id": "s0", "task": "t", "timeout": "4s"}
CHILD = {"id": "s0", "type": "sub_workflow", "config": {"workflow": "child"}}
STRICT = {"type": "object", "required": ["x"]}

# Those that others start: children, and what follows from a failure.
CALLED: tuple[Fields, ...] = (
    {"name": "child", "steps": [ONE_TASK], "default_retry": NO_RETRY},
    {"name": "chain", "steps": [CHILD, {"id": "s1", "task": "u", "depends_on": ["s0"]}]},
    {"name": "strict", "steps": [ONE_TASK], "input_schema": STRICT},
    {"name": "quick", "steps": [{"id": "s0", "type": "sleep", "config": {"duration": "300ms"}}]},
    {"name": "after", "steps": [ONE_TASK], "on_failure": {"workflow": "after"}},
)

# Those are for stories.
NAP = {"id": "s0", "type": "sleep", "config": {"duration": "2s"}}
SLEEP = {"id": "s1", "type": "sleep", "depends_on": ["s0"], "config": {"duration": "7s"}}
NOWHERE = {"id": "s0", "type": "sub_workflow", "config": {"workflow": "nowhere"}}
WAIT = {"id": "s0", "type": "wait_for_event", "config": {"event": "e", "match": "event.x == 3"}}
UNTIL = {"event": "e", "timeout": "2s", "on_timeout": "continue"}
BRIEF = {"id": "s0", "type": "wait_for_event", "config": UNTIL}
WAIT_FIRST = {"id": "s0", "type": "wait_for_event", "config": {"event": "e"}}
BACK = {"event": "e", "lookback": "1m", "timeout": "2s", "on_timeout": "continue"}
WAIT_AGAIN = {"id": "s1", "type": "wait_for_event", "depends_on": ["s0"], "config": BACK}
CHILDREN = {"id": "s0", "type": "map", "config": {"items": [1, 2, 3], "workflow": "child"}}
OWN = {"field": "order.id", "value": "${{ run.id }}"}
BUSY: list[Fields] = [
    {"id": "s0", "task": "u"},
    {
        "id": "s1",
        "type": "wait_for_event",
        "depends_on": ["s0"],
        "config": {"event": "f", "match": "event.x == 1"},
        "when": "steps.s0.output.x == 1",
    },
    {
        "id": "s2",
        "type": "wait_for_event",
        "config": {"event": "e", "correlate": OWN, "lookback": "500ms", "timeout": "700ms", "on_timeout": "continue"},
    },
]
THREE = {"id": "s0", "type": "map", "task": "t", "config": {"items": [1, 2, 3]}}
UNDO: Fields = {"compensate": {"task": "t"}}
BLINK: Fields = {"type": "sleep", "config": {"duration": "10ms"}, **UNDO}
ONE_BY_ONE = {"items": [{"x": 1}, 2], "max_concurrency": 1, "workflow": "strict"}
RECOVERED: Fields = {"id": "s0", "type": "map", "config": ONE_BY_ONE, "on_failure": {"task": "t"}, **UNDO}
LOST = {**NOWHERE, "id": "s2", "depends_on": ["s0", "s1"]}
FIXED: tuple[Fields, ...] = (
    *CALLED,
    {"name": "asleep", "steps": [NAP, SLEEP]},
    {"name": "three", "steps": [THREE]},
    {"name": "waiting", "steps": [WAIT]},
    {"name": "brief", "steps": [BRIEF]},
    {"name": "again", "steps": [WAIT_FIRST, WAIT_AGAIN]},
    {"name": "mother", "steps": [CHILD]},
    {"name": "mothers", "steps": [CHILDREN]},
    {"name": "busy", "steps": BUSY},
    {"name": "doomed", "steps": [NOWHERE], "on_failure": {"workflow": "quick"}},
    {"name": "recovering", "steps": [RECOVERED, {"id": "s1", **BLINK}, LOST]},
    {"name": "overdue", "steps": [{"id": "s0", **BLINK}, {**SLEEP, "config": {"duration": "1h"}}], "timeout": "5s"},
)


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
        if chance.random() < 0.2 and step["type"] not in ("sleep", "respond"):
            step["on_failure"] = _handler(chance)
        steps.append(step)
    _have_undone(Random(f"{name} undoes"), steps)
    labelled = Random(f"{name} labels")
    _label_children(labelled, steps)
    return {
        "name": name,
        "version": "1",
        "steps": steps,
        "on_failure": chance.choice((None, None, {"workflow": "after", **_labels(labelled)})),
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


def _child(chance: Random, depends_on: list[str]) -> Fields:
    config: Fields = {"workflow": chance.choice(("child", "child", "child", "chain", "strict", "quick", "nowhere"))}
    if chance.random() < 0.2:
        config["version"] = chance.choice(("1", "1", "2"))
    if chance.random() < 0.2:
        config["detach"] = True
    fields = {"type": "sub_workflow", "timeout": chance.choice((None, None, "1s", "4s")), "config": config}
    if chance.random() < 0.4:
        fields["with"] = _input(chance, depends_on)
    return fields


def _children(chance: Random, depends_on: list[str]) -> Fields:
    """A map over a workflow."""
    config = {"items": list(ELEMENTS[: chance.choice((1, 2, 3))]), **_elements(chance)}
    config["workflow"] = chance.choice(("child", "child", "strict", "quick"))
    return {"type": "map", "timeout": chance.choice((None, None, "1s", "4s")), "config": config}


def _wait(chance: Random, depends_on: list[str]) -> Fields:
    config: Fields = {"event": chance.choice(("e", "e", "f"))}
    if chance.random() < 0.7:
        config["correlate"] = {"field": "order.id", "value": "${{ run.id }}"}
    if chance.random() < 0.3:
        config["match"] = chance.choice(("event.x == 1", "event.x == 1", "event.x == 2"))
    if chance.random() < 0.6:
        config["timeout"] = chance.choice(("700ms", "2s", "5s"))
        config["on_timeout"] = chance.choice(("fail", "continue", "continue"))
    if chance.random() < 0.4:
        config["lookback"] = chance.choice(("500ms", "3s", "1m"))
    return {"type": "wait_for_event", "config": config}


def _planner(chance: Random, depends_on: list[str]) -> Fields:
    fields: Fields = {"type": "planner", "task": chance.choice(("t", "u")), "timeout": chance.choice((None, "4s"))}
    if chance.random() < 0.3:
        fields["config"] = {"max_steps": 20, "max_depth": 2}
    return fields


def _respond(chance: Random, depends_on: list[str]) -> Fields:
    config = {"status": chance.choice((200, 201, "${{ 404 }}")), "body": _input(chance, depends_on)}
    return {"type": "respond", "config": config}


def _handler(chance: Random) -> Fields:
    fields: Fields = {"task": chance.choice(("t", "u"))}
    if chance.random() < 0.4:
        fields["with"] = {"failed": "${{ default.step }}", "of": "${{ run.workflow }}"}
    if chance.random() < 0.3:
        fields["retry"] = _retry(chance)
    return fields


def _have_undone(chance: Random, steps: list[Fields]) -> None:
    """In some definitions steps of every kind can be undone."""
    if chance.random() >= UNDOING:
        return
    for step in steps:
        if chance.random() < 0.7:
            step["compensate"] = _compensation(chance)


def _label_children(chance: Random, steps: list[Fields]) -> None:
    for step in steps:
        if "workflow" in step.get("config", {}):
            step["config"] |= _labels(chance)


def _labels(chance: Random) -> Fields:
    """What a run that another one starts is given."""
    team = "${{ has(run.labels.team) ? run.labels.team : 'none' }}"
    of = chance.choice(({"of": "${{ run.workflow }}"}, {"of": "v${{ run.version }}", "run": "${{ run.id }}"}))
    return {"labels": {**of, "team": team}} if chance.random() < 0.5 else {}


def _compensation(chance: Random) -> Fields:
    fields: Fields = {"task": chance.choice(("t", "u"))}
    if chance.random() < 0.4:
        fields["with"] = {"undone": "${{ default.output }}", "of": "${{ run.workflow }}"}
    if chance.random() < 0.5:
        fields["retry"] = _retry(chance)
    if chance.random() < 0.3:
        fields["timeout"] = "4s"
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


KINDS: tuple[Draw, ...] = (_task, _sleep, _map, _child, _children, _wait, _planner, _respond)
WEIGHTS = (3, 2, 3, 3, 1, 3, 2, 1)
