"""From the untyped JSON of a workflow definition to a `WorkflowDef`, or to everything that is wrong with it.

What a field may hold stands in the tables below, of which the API's document is made, too. A problem is one sentence
that begins with the step and the field, or names the offender itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import orjson
from msgspec import structs

from penstock.config.limits import LOOP_ITERATIONS_MAX, RETRIES_MAX, STEPS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import StepType, WorkflowDef, from_json
from penstock.engine.definition.forms import (
    Document,
    Form,
    Rule,
    at_least_one,
    default_in_words,
    exactly_one,
    nested,
    read_object,
)
from penstock.engine.definition.graph import circle_problems
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid

_ENDLESS = "must hold max_iterations or max_duration, or the loop has no end"


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
    workflow = read_object(WORKFLOW, "", document, report)
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


def _steps(path: str, value: object, report: Report) -> list[object]:
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if not 1 <= len(value) <= STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, it must have 1 to {STEPS_MAX}")
        return []
    return [ANY_STEP.read(_label(index, step), step, report) for index, step in enumerate(value)]


def _label(index: int, step: object) -> str:
    match step:
        case {"id": str(step_id)}:
            return f"step {quoted(step_id)}"
        case _:
            return f"steps[{index}]"


def _step(label: str, value: object, report: Report) -> Document:
    kind = value.get("type") if isinstance(value, dict) else None
    step = read_object(FORMS.get(kind if isinstance(kind, str) else StepType.NORMAL, STEP), f"{label}: ", value, report)
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
    read = read_object(LOOP, f"{path}: ", value, report)
    if isinstance(value, dict) and not {"max_iterations", "max_duration"} & read.keys():
        report.add(f"{path} {_ENDLESS}")
    return read


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


def _type(kind: StepType) -> Rule:
    """Any type is read, so that an unknown one is named; the schema of a form has its own."""
    return structs.replace(values.one_of(*StepType), schema={"const": kind})


RETRY = Form(
    component="RetryPolicy",
    fields={
        "max_attempts": values.whole_number(RETRIES_MAX).annotated(description="Retries after the first execution."),
        "strategy": values.one_of("fixed", "linear", "exponential").annotated(description=default_in_words("fixed")),
        "initial_delay": values.delay,
        "max_delay": values.delay,
        "multiplier": values.multiplier.annotated(description=default_in_words(2)),
    },
    required=("max_attempts",),
)

SKIP_IF = Form(
    component="SkipIf",
    fields={
        "step_id": values.text.annotated(description="One of depends_on."),
        "field": values.dot_path,
        "op": values.one_of("==", "!=", "<", "<=", ">", ">="),
        "value": values.anything.annotated(description="Any JSON; null is a value, too."),
    },
    required=("step_id", "field", "op", "value"),
    nullable=frozenset({"value"}),
)

LOOP = Form(
    component="LoopConfig",
    fields={
        "max_iterations": values.whole_number(LOOP_ITERATIONS_MAX, 1),
        "max_duration": values.timeout,
        "loop_delay": values.delay,
    },
    schema=at_least_one("max_iterations", "max_duration"),
)

APPROVAL = Form(
    component="ApprovalConfig",
    fields={
        "timeout": values.approval_timeout.annotated(description="24h without one, 168h at most."),
        "subject": values.subject.annotated(description="Where the request for an approval is published."),
        "description": values.text,
        "metadata": values.strings,
    },
)

LOOP_CONFIG = structs.replace(nested(LOOP), read=_loop_config)

STEP = Form(
    component="NormalStep",
    fields={
        "id": values.name,
        "task": values.name,
        "type": _type(StepType.NORMAL),
        "depends_on": Rule(
            _depends_on,
            {
                "type": "array",
                "items": {"type": "string"},
                "uniqueItems": True,
                "maxItems": STEPS_MAX,
                "description": "Ids of steps that come before it.",
            },
        ),
        "timeout": values.timeout,
        "retry": nested(RETRY),
        "retries": values.whole_number(RETRIES_MAX).annotated(description="Short for so many retries, 5 s apart."),
        "skip_if": nested(SKIP_IF),
        "metadata": values.strings,
        "worker_group": values.name,
    },
    required=("id", "task"),
    elsewhere=frozenset({"config", "loop"}),
    schema={"description": "A task for a worker."},
)

# No worker carries an approval out: what says how a worker should would mislead.
FOR_WORKERS = frozenset({"retry", "retries", "worker_group"})

FORMS: Mapping[str, Form] = {
    StepType.NORMAL: STEP,
    StepType.AGENT_LOOP: structs.replace(
        STEP,
        component="AgentLoopStep",
        fields={
            **STEP.fields,
            "type": _type(StepType.AGENT_LOOP),
            "config": LOOP_CONFIG,
            "loop": LOOP_CONFIG,
        },
        required=("id", "task", "type"),
        elsewhere=frozenset(),
        schema={
            **exactly_one("config", "loop"),
            "description": "A task that is carried out again until its worker completes it; "
            "`loop` is another name for `config`.",
        },
    ),
    StepType.APPROVAL: Form(
        component="ApprovalStep",
        fields={
            **{key: field for key, field in STEP.fields.items() if key not in FOR_WORKERS},
            "type": _type(StepType.APPROVAL),
            "timeout": values.approval_timeout,
            "config": nested(APPROVAL),
        },
        required=("id", "type"),
        elsewhere=FOR_WORKERS | {"loop"},
        schema={"description": "A person's decision; no worker takes part."},
    ),
}

ANY_STEP = Rule(_step, {"anyOf": list(FORMS.values())}, component="Step")

WORKFLOW = Form(
    component="WorkflowDef",
    fields={
        "name": values.name,
        "version": values.version.annotated(description=default_in_words("1")),
        "steps": Rule(
            _steps,
            {
                "type": "array",
                "items": ANY_STEP,
                "minItems": 1,
                "maxItems": STEPS_MAX,
                "description": "Ids are unique; dependencies form no cycle.",
            },
        ),
        "timeout": values.timeout,
        "default_retry": nested(RETRY),
        "input_schema": values.json_schema.annotated(description="JSON Schema 2020-12, checked when a run starts."),
        "description": values.text,
        "sticky": values.one_of("soft", "hard").annotated(
            description="Steps stay on the worker that completed the first one."
        ),
    },
    required=("name", "steps"),
    ignored={"$schema": "Ignored."},
    schema={"description": "A workflow. A field that is null counts as absent."},
)
