"""From the untyped JSON of a workflow definition to a `WorkflowDef`, or to everything that is wrong with it.

Rules: PROTOCOL, Names and limits, WorkflowDef, Validation. What a field may hold stands in the tables below; a problem
is one sentence that begins with the step and the field, or names the offender itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

import orjson
from msgspec import Struct, structs

from penstock.config.limits import LOOP_ITERATIONS_MAX, RETRIES_MAX, STEPS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import StepType, WorkflowDef, from_json
from penstock.engine.definition.graph import circle_problems
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.values import Read
from penstock.engine.errors import Invalid

Document: TypeAlias = dict[str, object]

_ENDLESS = "must hold max_iterations or max_duration, or the loop has no end"


class Form(Struct, frozen=True):
    """What an object may hold: `elsewhere` are fields that other kinds of it have, told apart from those that nobody
    knows."""

    fields: Mapping[str, Read]
    required: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()


def parse(document: object) -> WorkflowDef:
    """The definition in `document` (as `orjson.loads` gives it), durations in normal form. Raises Invalid with all
    problems."""
    read, report = _read(document)
    if found := report.problems():
        raise Invalid(*found)
    return from_json(orjson.dumps(read))


def problems(document: object) -> list[str]:
    """One sentence per problem, at most 100 and a line that counts the rest; empty for a valid definition."""
    return _read(document)[1].problems()


def _read(document: object) -> tuple[Document, Report]:
    report = Report()
    if problem := _unkeepable(document):
        report.add(problem)
        return {}, report
    workflow = _object(WORKFLOW, "", document, report)
    steps = workflow.get("steps", [])
    assert isinstance(steps, list), "_steps makes one of whatever stands there"
    _check_graph(steps, report)
    return workflow, report


def _unkeepable(document: object) -> str | None:
    if not isinstance(document, dict):
        return f"a workflow definition must be an object, not {json_type(document)}"
    try:
        orjson.dumps(document)
    except TypeError as error:  # nested deeper than the store can write, or no JSON at all
        return f"the workflow definition cannot be stored as JSON: {error}"
    return None


def _object(form: Form, prefix: str, value: object, report: Report) -> Document:
    """The fields of `value` that are there, read; null is absent. `prefix` (`step "b": `) begins every problem."""
    if not isinstance(value, dict):
        report.add(f"{prefix}an object is needed, not {json_type(value)}")
        return {}
    report.add(*_strangers(form, prefix, value))
    report.add(*(f"{prefix}{key} is missing" for key in form.required if value.get(key) is None))
    present = {key: read for key, read in form.fields.items() if value.get(key) is not None}
    return {key: read(prefix + key, value[key], report) for key, read in present.items()}


def _strangers(form: Form, prefix: str, value: Document) -> Iterator[str]:
    known = form.fields.keys() | form.elsewhere | form.ignored
    for key in value:
        if key in form.elsewhere and value[key] not in (None, {}):
            yield f"{prefix}{key} is not for a step of this type"
        elif key not in known:
            yield f"{prefix}unknown field {quoted(key)}"


def _steps(path: str, value: object, report: Report) -> list[Document]:
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if not 1 <= len(value) <= STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, it must have 1 to {STEPS_MAX}")
        return []
    return [_step(_label(index, step), step, report) for index, step in enumerate(value)]


def _label(index: int, step: object) -> str:
    match step:
        case {"id": str(step_id)}:
            return f"step {quoted(step_id)}"
        case _:
            return f"steps[{index}]"


def _step(label: str, value: object, report: Report) -> Document:
    kind = value.get("type") if isinstance(value, dict) else None
    step = _object(FORMS.get(kind if isinstance(kind, str) else StepType.NORMAL, STEP), f"{label}: ", value, report)
    if kind == StepType.AGENT_LOOP:
        step = _loop(label, step, report)
    match step:
        case {"skip_if": {"step_id": str(other_id)}} if other_id not in _dependencies(step):
            report.add(f"{label}: skip_if: step_id {quoted(other_id)} is not one of its depends_on")
    return step


def _loop(label: str, step: Document, report: Report) -> Document:
    """With its bounds under `config`, where `loop` may have brought them."""
    given = [key for key in ("config", "loop") if key in step]
    if not given:
        report.add(f"{label}: config {_ENDLESS}")
    if len(given) > 1:
        report.add(f"{label}: config and loop are two names of one field, give one of them")
    bounds = {"config": step[given[0]]} if given else {}
    return {key: value for key, value in step.items() if key not in given} | bounds


def _loop_config(path: str, value: object, report: Report) -> object:
    read = _object(LOOP, f"{path}: ", value, report)
    if isinstance(value, dict) and not {"max_iterations", "max_duration"} & read.keys():
        report.add(f"{path} {_ENDLESS}")
    return read


def _approval_config(path: str, value: object, report: Report) -> object:
    return _object(APPROVAL, f"{path}: ", value, report)


def _depends_on(path: str, value: object, report: Report) -> list[str]:
    """The strings in `value`, each once."""
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if len(value) > STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, {STEPS_MAX} is the most")
        return []
    report.add(
        *(
            f"{path}[{n}] must be a string, not {json_type(item)}"
            for n, item in enumerate(value)
            if not isinstance(item, str)
        )
    )
    counts = Counter(item for item in value if isinstance(item, str))
    report.add(*(f"{path} names {quoted(step_id)} {count} times" for step_id, count in counts.items() if count > 1))
    return list(counts)


def _retry(path: str, value: object, report: Report) -> object:
    return _object(RETRY, f"{path}: ", value, report)


def _skip_if(path: str, value: object, report: Report) -> object:
    read = _object(SKIP_IF, f"{path}: ", value, report)
    if isinstance(value, dict) and "value" not in value:
        report.add(f"{path}: value is missing")
    # Null is a value to compare with here, not an absent field.
    return {"value": None} | read


def _check_graph(steps: list[Document], report: Report) -> None:
    counts = Counter(step_id for step in steps if isinstance(step_id := step.get("id"), str))
    report.add(
        *(f"duplicate step id {quoted(step_id)}, used {count} times" for step_id, count in counts.items() if count > 1)
    )
    for index, step in enumerate(steps):
        report.add(*_dependency_problems(_label(index, step), step, counts.keys()))
    report.add(
        *circle_problems({step_id: _dependencies(step) for step in steps if isinstance(step_id := step.get("id"), str)})
    )


def _dependency_problems(label: str, step: Document, known: Collection[str]) -> Iterator[str]:
    for step_id in _dependencies(step):
        if step_id == step.get("id"):
            yield f"{label} depends on itself"
        elif step_id not in known:
            yield f"{label} depends on {quoted(step_id)}, which does not exist"


def _dependencies(step: Document) -> list[str]:
    read = step.get("depends_on", [])
    assert isinstance(read, list), "_depends_on makes one of whatever stands there"
    return read


RETRY = Form(
    fields={
        "max_attempts": values.whole_number(RETRIES_MAX),
        "strategy": values.one_of("fixed", "linear", "exponential"),
        "initial_delay": values.delay,
        "max_delay": values.delay,
        "multiplier": values.multiplier,
    },
    required=("max_attempts",),
)

SKIP_IF = Form(
    fields={
        "step_id": values.text,
        "field": values.dot_path,
        "op": values.one_of("==", "!=", "<", "<=", ">", ">="),
        "value": values.anything,
    },
    required=("step_id", "field", "op"),
)

LOOP = Form(
    fields={
        "max_iterations": values.whole_number(LOOP_ITERATIONS_MAX, 1),
        "max_duration": values.timeout,
        "loop_delay": values.delay,
    }
)

APPROVAL = Form(
    fields={
        "timeout": values.approval_timeout,
        "subject": values.subject,
        "description": values.text,
        "metadata": values.strings,
    }
)

STEP = Form(
    fields={
        "id": values.name,
        "task": values.name,
        "type": values.one_of(*StepType),
        "depends_on": _depends_on,
        "timeout": values.timeout,
        "retry": _retry,
        "retries": values.whole_number(RETRIES_MAX),
        "skip_if": _skip_if,
        "metadata": values.strings,
        "worker_group": values.name,
    },
    required=("id", "task"),
    elsewhere=frozenset({"config", "loop"}),
)

# No worker carries an approval out: what says how a worker should would mislead.
FOR_WORKERS = frozenset({"retry", "retries", "worker_group"})

FORMS: Mapping[str, Form] = {
    StepType.NORMAL: STEP,
    StepType.AGENT_LOOP: structs.replace(
        STEP, fields={**STEP.fields, "config": _loop_config, "loop": _loop_config}, elsewhere=frozenset()
    ),
    StepType.APPROVAL: Form(
        fields={
            **{key: read for key, read in STEP.fields.items() if key not in FOR_WORKERS},
            "timeout": values.approval_timeout,
            "config": _approval_config,
        },
        required=("id",),
        elsewhere=FOR_WORKERS | {"loop"},
    ),
}

WORKFLOW = Form(
    fields={
        "name": values.name,
        "version": values.version,
        "steps": _steps,
        "timeout": values.timeout,
        "default_retry": _retry,
        "input_schema": values.json_schema,
        "description": values.text,
        "sticky": values.one_of("soft", "hard"),
    },
    required=("name", "steps"),
    ignored=frozenset({"$schema"}),
)
