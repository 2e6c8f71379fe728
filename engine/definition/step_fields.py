"""The fields that steps of every kind may have: how they are read, and their JSON Schema."""

from __future__ import annotations

from collections import Counter

from penstock.config.limits import RETRIES_MAX, STEPS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.forms import Document, Form, Rule, default_in_words, nested
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report


def step_type(name: str) -> Rule:
    """The rule of `type` in the form of one kind. It only describes the field: validation reads it by the table of all
    kinds."""
    return Rule(values.anything.read, {"const": name})


def dependencies(step: Document) -> list[str]:
    """The ids in `depends_on` of a step that has been read."""
    read = step.get("depends_on", [])
    assert isinstance(read, list), "_depends_on makes one of whatever stands there"
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

HANDLER = Form(
    component="StepHandler",
    fields={
        "task": values.task_type,
        "with": values.anything.annotated(
            description="Its input in place of the default, which is `default` in templates."
        ),
        "retry": nested(RETRY),
        "timeout": values.timeout.annotated(description="The step's without it."),
        "worker_group": values.name.annotated(description="The step's without it."),
    },
    required=("task",),
)

# What a step of every kind may have.
COMMON = {
    "when": values.expression.annotated(description="A condition. Where it is false, the step is skipped."),
    "with": values.anything.annotated(
        description="The step's input in place of its default: any JSON, with `${{ expression }}` in its strings."
    ),
    "name": values.text.annotated(description="Shown to people in place of the id."),
    "description": values.text.annotated(description="Shown to people."),
    "on_failure": nested(HANDLER).annotated(
        description="A task for when the step has failed for good, with `{step, error, input, attempts}`. Where it "
        "completes, the step is `recovered`, with its output."
    ),
    "compensate": nested(HANDLER).annotated(
        description="A task that undoes the step, with `{input, output}`: if it has completed, and the run fails or is "
        "cancelled with `compensate`. Of a map it undoes each element that has completed."
    ),
}

_DEPENDS_ON = Rule(
    _depends_on,
    {
        "type": "array",
        "items": {"type": "string"},
        "uniqueItems": True,
        "maxItems": STEPS_MAX,
        "description": "Ids of steps that come before it.",
    },
)

# What only makes sense of a step that a worker carries out: of any other one it would mislead.
FOR_WORKERS_ONLY = frozenset({"task", "timeout", "retry", "retries", "worker_group", "with", "loop"})

# The fields of a step that no worker takes part in.
WITHOUT_WORKER = {
    "id": values.name,
    "depends_on": _DEPENDS_ON,
    "skip_if": nested(SKIP_IF),
    "metadata": values.strings,
    **{key: field for key, field in COMMON.items() if key != "with"},
}

STEP = Form(
    component="NormalStep",
    fields={
        "id": values.name,
        "task": values.task_type,
        "type": step_type("normal"),
        "depends_on": _DEPENDS_ON,
        "timeout": values.timeout,
        "retry": nested(RETRY),
        "retries": values.whole_number(RETRIES_MAX).annotated(
            description="Short form of `retry`: this many retries, 5 s apart."
        ),
        "skip_if": nested(SKIP_IF),
        "metadata": values.strings,
        "worker_group": values.name,
        **COMMON,
    },
    required=("id", "task"),
    elsewhere=frozenset({"config", "loop"}),
    schema={"description": "A task for a worker."},
)
