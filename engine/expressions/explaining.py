"""Says of the expressions in a definition where each stands, what it reads, and what is wrong with it: for people who
check a definition before they register it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from penstock.engine.errors import Invalid
from penstock.engine.expressions.expression import Wanted, compile_expression
from penstock.engine.expressions.places import Place
from penstock.engine.expressions.scope import References, Scope
from penstock.engine.expressions.template import secret_in
from penstock.engine.expressions.template_text import has_placeholder, split

_CEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ExplainedExpression(Struct, frozen=True, omit_defaults=True):
    """`step` is the step's id, empty for a field of the workflow itself, and `field` where in it the expression stands:
    `when`, `with.user.name`. `reads` are the names that it needs: `input`, `steps.a.output`. `problems` say why it does
    not compile, `warnings` what may go over a bound."""

    step: str
    field: str
    expression: str
    reads: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def explain(step_id: str, place: Place, value: object, scope: Scope) -> Iterator[ExplainedExpression]:
    """The expressions at a place of a step, each for itself."""
    if place.template:
        yield from _in_template(step_id, place.path, value, scope, place.secrets)
    elif isinstance(value, str):
        yield _explained(step_id, place.path, value, scope, "bool" if place.condition else "any", 0)


def _explained(step_id: str, field: str, text: str, scope: Scope, wanted: Wanted, at: int) -> ExplainedExpression:
    try:
        compiled = compile_expression(text, scope, wanted, at=at)
    except Invalid as error:
        return ExplainedExpression(step_id, field, text, problems=error.problems)
    return ExplainedExpression(
        step_id, field, text, tuple(_read_names(compiled.references)), warnings=compiled.warnings
    )


def _in_template(step_id: str, field: str, value: object, scope: Scope, secrets: bool) -> Iterator[ExplainedExpression]:
    match value:
        case str() if has_placeholder(value):
            yield from _in_text(step_id, field, value, scope, secrets)
        case dict():
            for key, each in value.items():
                yield from _in_template(step_id, f"{field}.{key}", each, scope, secrets)
        case list():
            for place, each in enumerate(value):
                yield from _in_template(step_id, f"{field}[{place}]", each, scope, secrets)


def _in_text(step_id: str, field: str, text: str, scope: Scope, secrets: bool) -> Iterator[ExplainedExpression]:
    try:
        parts = split(text)
    except Invalid as error:
        yield ExplainedExpression(step_id, field, text, problems=error.problems)
        return
    for part in parts:
        if isinstance(part, str):
            continue
        if secrets and (name := secret_in(part)):
            yield ExplainedExpression(step_id, field, part.expression.strip(), (f"secret.{name}",))
        else:
            stripped = part.expression.lstrip()
            at = part.at + len(part.expression) - len(stripped)
            yield _explained(step_id, field, stripped.rstrip(), scope, "any", at)


def _read_names(references: References) -> Iterator[str]:
    """What is read, as it is written in an expression."""
    yield from sorted(references.names)
    for part, step_ids in (("output", references.outputs), ("status", references.statuses)):
        for step_id in sorted(step_ids):
            step = f"steps.{step_id}" if _CEL_NAME.fullmatch(step_id) else f'steps["{step_id}"]'
            yield f"{step}.{part}"
