"""The fields that steps of every kind may have: how they are read, and their JSON Schema."""

from __future__ import annotations

from collections import Counter

from penstock.config.limits import LIMIT_MAX, LIMITS_MAX, RETRIES_MAX, STEPS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.forms import Document, Form, Rule, default_in_words, nested, read_object
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

_LIMIT = values.whole_number(LIMIT_MAX).annotated(description="So many at a time. 0 lets nothing begin.")
_KEY = values.expression.annotated(description="Each of its values has a limit of its own.")
_SCOPE = "A name that limits with the same name share. "

_AT_A_TIME = {
    "limit": _LIMIT,
    "key": _KEY,
    "fair_by": values.expression.annotated(description="Who waits is served by turns between its values."),
}
EXECUTIONS_AT_A_TIME = Form(
    component="ConcurrencyOfSteps",
    fields={
        **_AT_A_TIME,
        "scope": values.name.annotated(description=_SCOPE + "<workflow>.<step> without it."),
        "on_limit": values.one_of("queue"),
    },
    required=("limit",),
    schema={"description": "How many executions may be out at a time."},
)
RUNS_AT_A_TIME = Form(
    component="ConcurrencyOfRuns",
    fields={
        **_AT_A_TIME,
        "scope": values.name.annotated(description=_SCOPE + "The name of the workflow without it."),
        "on_limit": values.one_of("queue", "skip", "replace").annotated(
            description="A run that finds no free slot waits; or ends as cancelled; or replaces who waits, or else the "
            "oldest holder. queue without it."
        ),
    },
    required=("limit",),
    schema={"description": "How many runs may go on at a time."},
)
RATE = Form(
    component="RateLimit",
    fields={
        "limit": values.whole_number(LIMIT_MAX).annotated(description="So many in `per`. 0 lets nothing begin."),
        "per": values.timeout,
        "burst": values.whole_number(LIMIT_MAX, 1).annotated(
            description="So many at once, after a pause; then one every per/limit."
        ),
        "key": _KEY,
        "scope": values.name.annotated(description=_SCOPE + "Without it as of `concurrency`."),
    },
    required=("limit", "per"),
    schema={"description": "How many may begin in a time."},
)


def _list_of(form: Form) -> Rule:
    """Reads a few objects of this form."""

    def read(path: str, value: object, report: Report) -> list[Document]:
        if not isinstance(value, list):
            report.add(f"{path} must be an array, not {json_type(value)}")
            return []
        if len(value) > LIMITS_MAX:
            report.add(f"{path} has {len(value)} entries, {LIMITS_MAX} is the most")
        return [read_object(form, f"{path}[{n}]: ", one, report) for n, one in enumerate(value[:LIMITS_MAX])]

    return Rule(read, {"type": "array", "items": form, "maxItems": LIMITS_MAX})


# Of workflows, and of steps whose executions workers carry out.
LIMITS_OF_RUNS = {
    "concurrency": _list_of(RUNS_AT_A_TIME).annotated(description="Limits of runs at a time, with different scopes."),
    "rate_limit": _list_of(RATE).annotated(description="Limits of runs that begin, with different scopes."),
    "priority": values.priority.annotated(description="Of what waits for a limit, a larger one goes first."),
}
LIMITS_OF_EXECUTIONS = {
    "concurrency": _list_of(EXECUTIONS_AT_A_TIME).annotated(
        description="Limits of executions at a time, with different scopes."
    ),
    "rate_limit": _list_of(RATE).annotated(description="Limits of executions that begin, with different scopes."),
    "priority": values.priority.annotated(description="Of what waits for a limit, a larger one goes first."),
}

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
FOR_WORKERS_ONLY = frozenset(
    {"task", "timeout", "retry", "retries", "worker_group", "with", "loop", *LIMITS_OF_EXECUTIONS}
)

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
        **LIMITS_OF_EXECUTIONS,
    },
    required=("id", "task"),
    elsewhere=frozenset({"config", "loop"}),
    schema={"description": "A task for a worker."},
)
