"""Reads the untyped JSON of a workflow definition. The result is a `WorkflowDef`, or all problems in it.

The fields are described by forms, from which the API's document is also made: the form of the workflow is below, those
of its steps are in definition/step_fields.py and run/kinds. A problem is one sentence that begins with the step and the
field, or names the offender itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import orjson
from msgspec import structs

from penstock.config.limits import STEPS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.definitions import WorkflowDef, from_json
from penstock.engine.definition.forms import Document, Form, Rule, default_in_words, nested, read_object
from penstock.engine.definition.graph import circle_problems
from penstock.engine.definition.identifiers import json_type, label_of, quoted
from penstock.engine.definition.labels import label_templates
from penstock.engine.definition.report import Report
from penstock.engine.definition.step_fields import LIMITS_OF_RUNS, RETRY, dependencies
from penstock.engine.errors import Invalid
from penstock.engine.expressions.explaining import ExplainedExpression, explain
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.places import (
    FAILED_RUN,
    FAILURE_INPUT,
    FAILURE_LABELS,
    HANDLERS,
    LIMIT_PARTS,
    OF_RUN,
    Place,
    ancestors,
    scope_of,
    written,
    written_limits,
)
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import compile_template
from penstock.engine.outlasting import outlasting
from penstock.engine.run.kinds.table import KINDS
from penstock.engine.run.workflow import COMPENSATE, StepKind

NUMBER_DIGITS_MAX = 20  # more than any element has, and fewer than `int` refuses


def parse(document: object, history_age_s_max: float | None = None) -> WorkflowDef:
    """The definition in `document` (as `orjson.loads` gives it), with normalised durations. Raises Invalid with all
    problems, also with waits that are longer than events are kept, if that is given."""
    read, report = _read(document)
    if history_age_s_max is not None:
        report.add(*outlasting(read, history_age_s_max))
    if found := report.problems():
        raise Invalid(*found)
    return from_json(orjson.dumps(read))


def problems(document: object) -> list[str]:
    """One sentence per problem, at most 100, then the number of the others; empty for a valid definition."""
    return _read(document)[1].problems()


def explained(document: object) -> list[ExplainedExpression]:
    """Every expression of a definition, also of one that is not valid, in the order of its steps."""
    workflow = _read(document)[0]
    steps = workflow.get("steps", [])
    assert isinstance(steps, list), "as in _read"
    found = _expressions(steps)
    of_steps = [one for step, place, value, scope in found for one in explain(str(step.get("id")), place, value, scope)]
    of_limits = [one for place, value in written_limits(workflow) for one in explain("", place, value, OF_RUN)]
    return [*of_steps, *_explained_input(workflow.get("on_failure")), *of_limits]


def _explained_input(follows: object) -> Iterator[ExplainedExpression]:
    """The expressions of the input and the labels of a run that follows a failed one."""
    if isinstance(follows, dict):
        yield from explain("", Place(FAILURE_INPUT), follows.get("with"), FAILED_RUN)
        yield from explain("", Place(FAILURE_LABELS), follows.get("labels"), FAILED_RUN)


def _read(document: object) -> tuple[Document, Report]:
    report = Report()
    if problem := _unkeepable(document):
        report.add(problem)
        return {}, report
    workflow = read_object(WORKFLOW, "", document, report)
    steps = workflow.get("steps", [])
    assert isinstance(steps, list), "_steps makes one of whatever stands there"
    check_graph(steps, report)
    report.add(*id_problems(steps))
    check_expressions(steps, report)
    for place, value in written_limits(workflow):
        report.add(*_place_problems("", place, value, OF_RUN))
    report.add(*_shared_scopes("", workflow, str(workflow.get("name"))))
    report.add(*scope_problems(steps, str(workflow.get("name"))))
    return workflow, report


def scope_problems(steps: list[Document], prefix: str) -> Iterator[str]:
    """Limits of one step that have the same scope. `prefix` and the id of the step are the scope of those without."""
    for index, step in enumerate(steps):
        if "concurrency" in step or "rate_limit" in step:
            yield from _shared_scopes(f"{label_of(index, step)}: ", step, f"{prefix}.{step.get('id')}")


def _shared_scopes(label: str, owner: Document, default: str) -> Iterator[str]:
    for field in LIMIT_PARTS:
        entries = owner.get(field, [])
        assert isinstance(entries, list), "its rule makes one of whatever stands there"
        counts = Counter(str(entry.get("scope", default)) for entry in entries)
        shared = (f"{quoted(scope)}, {count} have it" for scope, count in counts.items() if count > 1)
        yield from (f"{label}{field}: each entry needs a scope of its own: {one}" for one in shared)


def _run_input(path: str, value: object, report: Report) -> object:
    try:
        compile_template(value, FAILED_RUN, path)
    except Invalid as invalid:
        report.add(*invalid.problems)
    return value


def _run_labels(path: str, value: object, report: Report) -> object:
    read = label_templates.read(path, value, report)
    return _run_input(path, read, report)


def _unkeepable(document: object) -> str | None:
    if not isinstance(document, dict):
        return f"a workflow definition must be an object, not {json_type(document)}"
    try:
        orjson.dumps(document)
    except TypeError as error:  # nested too deeply, or not JSON
        return f"the workflow definition cannot be stored as JSON: {error}"
    return None


def _steps(path: str, value: object, report: Report) -> list[object]:
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if not 1 <= len(value) <= STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, it must have 1 to {STEPS_MAX}")
        return []
    return [ANY_STEP.read(label_of(index, step), step, report) for index, step in enumerate(value)]


def _step(label: str, value: object, report: Report) -> Document:
    kind = _kind(value)
    form = structs.replace(kind.form, fields={**kind.form.fields, "type": values.one_of(*KINDS)})
    step = kind.check(label, read_object(form, f"{label}: ", value, report), report)
    match step:
        case {"skip_if": {"step_id": str(other_id)}} if other_id not in dependencies(step):
            report.add(f"{label}: skip_if: step_id {quoted(other_id)} is not one of its depends_on")
    report.add(*_type_problems(label, step))
    return step


def _type_problems(label: str, step: Document) -> Iterator[str]:
    """Types that a planner allows and that no step can have."""
    match step:
        case {"type": "planner", "config": {"allowed_types": list(names)}}:
            unknown = [quoted(name) for name in names if name not in KINDS]
            yield from (f"{label}: config: allowed_types: {name} is no type of a step" for name in unknown)


def _kind(step: object) -> StepKind:
    """The kind in `type`; the normal kind when it is missing or unknown."""
    name = step.get("type") if isinstance(step, dict) else None
    return KINDS.get(name if isinstance(name, str) else "", KINDS["normal"])


def check_graph(steps: list[Document], report: Report, outside: Collection[str] = ()) -> None:
    """Report what is wrong with ids and dependencies; `outside` are ids that stand elsewhere."""
    counts = Counter(step_id for step in steps if isinstance(step_id := step.get("id"), str))
    report.add(
        *(f"duplicate step id {quoted(step_id)}, used {count} times" for step_id, count in counts.items() if count > 1)
    )
    for index, step in enumerate(steps):
        report.add(*_dependency_problems(label_of(index, step), step, counts.keys() | set(outside)))
    report.add(
        *circle_problems({step_id: dependencies(step) for step in steps if isinstance(step_id := step.get("id"), str)})
    )


def id_problems(steps: list[Document]) -> Iterator[str]:
    """Ids that executions within other steps have."""
    maps = {str(step.get("id")) for step in steps if step.get("type") == "map"}
    undone = {str(step.get("id")) for step in steps if step.get("type") == "map" and COMPENSATE in step}
    given = {f"{step.get('id')}.{field}": step.get("id") for step in steps for field in HANDLERS if field in step}
    planners = {str(step.get("id")) for step in steps if step.get("type") == "planner"}
    for index, step in enumerate(steps):
        if (step_id := str(step.get("id"))) in given:
            field = step_id.rpartition(".")[2]
            yield f"{label_of(index, step)} has the id of the {field} of step {quoted(str(given[step_id]))}"
        map_id, _, number = str(step.get("id")).rpartition(".")
        if map_id in maps and _is_number(number):
            yield f"{label_of(index, step)} has the id of an element of the map {quoted(map_id)}"
        whole, _, element = map_id.rpartition(".")
        if number == COMPENSATE and whole in undone and _is_number(element):
            yield f"{label_of(index, step)} has the id of the compensate of an element of the map {quoted(whole)}"
        for planner_id in _prefixes(str(step.get("id"))) & planners:
            yield f"{label_of(index, step)} has the id of a step of the planner {quoted(planner_id)}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and text == str(int(text[:NUMBER_DIGITS_MAX]))


def _prefixes(step_id: str) -> set[str]:
    """What stands before each dot of it."""
    parts = step_id.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def _expressions(
    steps: list[Document], outside: frozenset[str] = frozenset()
) -> Iterator[tuple[Document, Place, object, Scope]]:
    """What stands in the steps where expressions may be, with what each may name: that depends on the graph."""
    dependencies_of = {
        step_id: tuple(dependencies(step)) for step in steps if isinstance(step_id := step.get("id"), str)
    }
    known, given = frozenset(dependencies_of), outside - dependencies_of.keys()
    for step in steps:
        kind = _kind(step)
        found = [*written(step, (*kind.places, *HANDLERS.values())), *written_limits(step, kind.names_of_limits)]
        before = ancestors(str(step.get("id")), dependencies_of) if found else frozenset()
        for place, value in found:
            yield step, place, value, scope_of(place, known, before | given)


def check_expressions(steps: list[Document], report: Report, outside: frozenset[str] = frozenset()) -> None:
    """Compile what stands in the steps. They may name the steps `outside`, too."""
    labels = {id(step): label_of(index, step) for index, step in enumerate(steps)}
    for step, place, value, scope in _expressions(steps, outside):
        report.add(*_place_problems(labels[id(step)], place, value, scope))


def _place_problems(label: str, place: Place, value: object, scope: Scope) -> Iterator[str]:
    path = place.path.replace(".", ": ", 1)
    whole = f"{label}: {path}" if label else path
    try:
        if place.template:
            compile_template(value, scope, whole, secrets=place.secrets)
        elif isinstance(value, str):
            compile_expression(value, scope, "bool" if place.condition else "any")
    except Invalid as invalid:
        yield from (problem if place.template else f"{whole}: {problem}" for problem in invalid.problems)


def _dependency_problems(label: str, step: Document, known: Collection[str]) -> Iterator[str]:
    for step_id in dependencies(step):
        if step_id == step.get("id"):
            yield f"{label} depends on itself"
        elif step_id not in known:
            yield f"{label} depends on {quoted(step_id)}, which does not exist"


ON_FAILURE = Form(
    component="WorkflowHandler",
    fields={
        "workflow": values.name.annotated(description="The latest version of it is started then."),
        "with": Rule(_run_input, values.anything.schema).annotated(
            description="The input of its run in place of the default, which is `default` in templates."
        ),
        "labels": structs.replace(label_templates, read=_run_labels).annotated(
            description="Of its run, with `${{ expression }}`."
        ),
    },
    required=("workflow",),
)

ANY_STEP = Rule(_step, {"anyOf": [kind.form for kind in KINDS.values()]}, component="Step")

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
        "on_failure": nested(ON_FAILURE).annotated(
            description="A run that is started when a run of this workflow has failed, with "
            "`{run_id, workflow, error, failed_step, input}`."
        ),
        "description": values.text,
        "sticky": values.one_of("soft", "hard").annotated(
            description="Steps stay on the worker that completed the first one."
        ),
        **LIMITS_OF_RUNS,
    },
    required=("name", "steps"),
    ignored={"$schema": "Ignored."},
    schema={"description": "A workflow. A field that is null counts as absent."},
)
