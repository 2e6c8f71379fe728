"""A scope and values that the tests of expressions share."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.expression import Wanted, compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import Template, compile_template

SCOPE = Scope(
    names=frozenset({"input", "run"}),
    steps=frozenset({"fetch", "my-step", "v1.2"}),
    other_steps=frozenset({"later"}),
)
RUN = {
    "id": "0" * 32,
    "workflow": "order",
    "version": "3",
    "labels": {"tier": "gold"},
    "created_at": "2026-01-31T08:00:00Z",
}


def value_of(text: str, input_json: str = "null", **outputs: str) -> Any:
    """What the expression gives for this input, and for these outputs (JSON) of steps."""
    steps = {step_id: {"output": Raw(output.encode()), "status": "completed"} for step_id, output in outputs.items()}
    values = {"input": Raw(input_json.encode()), "run": RUN, "steps": steps}
    return compile_expression(text, SCOPE).evaluate(values)


def reason(text: str, input_json: str = "null") -> str:
    """Why the expression fails for this input; fails the test if it does not."""
    try:
        found = value_of(text, input_json)
    except ExpressionFailed as error:
        return str(error).removeprefix(f"expression {quoted(text)}: ")
    raise AssertionError(f"it gives {found!r}")


def problems(text: str, wanted: Wanted = "any", scope: Scope = SCOPE) -> list[str]:
    """What is wrong with the expression where it is registered; none for a valid one."""
    try:
        compile_expression(text, scope, wanted)
    except Invalid as error:
        return list(error.problems)
    return []


def template(value: Any, scope: Scope = SCOPE) -> Template:
    return compile_template(value, scope, "with")


def template_problems(value: Any) -> list[str]:
    try:
        template(value)
    except Invalid as error:
        return list(error.problems)
    return []


def rendered(value: Any, input_json: str = "null", **outputs: str) -> bytes:
    """The JSON that the template gives for this input, and for these outputs (JSON) of steps."""
    steps = {step_id: {"output": Raw(output.encode()), "status": "completed"} for step_id, output in outputs.items()}
    return template(value).json({"input": Raw(input_json.encode()), "run": RUN, "steps": steps})
