"""Labels of the runs that a trigger starts: texts with expressions over the event."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Raw, structs

from penstock.engine.definition import values
from penstock.engine.definition.labels import label_of, label_templates, problems
from penstock.engine.definition.report import Report
from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import Template, compile_template

PATH = "labels"
SCOPE = Scope(names=frozenset({"event"}))
TEMPLATES_CACHED = 256


def _read(path: str, value: object, report: Report) -> object:
    """Texts by names, with `${{ expression }}` over `event`."""
    read = label_templates.read(path, value, report)
    assert isinstance(read, dict)
    for key, text in read.items():
        if values.is_template(text):
            _check(path, key, text, report)
    return read


event_labels = structs.replace(label_templates, read=_read)


def run_labels(labels: Mapping[str, str] | None, event: Raw) -> dict[str, str] | None:
    """The labels of the run that this event starts; None without any.

    Raises Invalid for an expression that fails on the event, or that may take more than some 10 ms over it, and for a
    value that is too long.
    """
    if not labels:
        return None
    template, given = _compiled(tuple(labels.items())), Values({"event": event})
    if template.is_heavy(given):
        raise Invalid(f"{PATH}: their expressions may take too long over an event of this size")
    try:
        found = {key: label_of(value) for key, value in template.evaluate(given).items()}
    except ExpressionFailed as error:
        raise Invalid(str(error)) from error
    if wrong := list(problems(PATH, found)):
        raise Invalid(*wrong)
    return found


@lru_cache(TEMPLATES_CACHED)
def _compiled(labels: tuple[tuple[str, str], ...]) -> Template:
    return compile_template(dict(labels), SCOPE, PATH)


def _check(path: str, key: str, text: object, report: Report) -> None:
    try:
        compile_template({key: text}, SCOPE, path)
    except Invalid as invalid:
        report.add(*invalid.problems)
