"""What is asked of a limit: its key, and the priority and fair value of who asks, from the run's values.

It is evaluated where the request is carried out, because a payload may be only in the history. It is pure: whoever
evaluates again, after a crash for example, gets the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from penstock.config.limits import LIMIT_KEY_CHARS_MAX, PRIORITY_MAX
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.scope import References, all_references
from penstock.engine.run.execution.beginning import about, names_of
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import StepPlan

KEY, FAIR_BY, PRIORITY = "key", "fair_by", "priority"


class Asking(Struct, frozen=True):
    """The key as its text, the priority, and the text of the value between whose takers turns are taken."""

    key: str | None = None
    priority: int = 0
    fair: str | None = None


def asking_expressions(wanted: SlotsPlan, number: int) -> dict[str, Expression]:
    """What has to be evaluated to ask for the limit with this number, by what it is for."""
    limit = wanted.limits[number]
    given = {KEY: limit.key, FAIR_BY: limit.fair_by, PRIORITY: wanted.priority}
    return {what: one for what, one in given.items() if isinstance(one, Expression)}


def read_by(expressions: Mapping[str, Expression]) -> References:
    return all_references(one.references for one in expressions.values())


def names_for(run: Run, plan: StepPlan | None, references: References, payloads: Mapping[str, Raw]) -> Values:
    """What the names of such an expression stand for; `plan` is None for a run."""
    if plan is not None:
        return names_of(run, plan, references, payloads)
    values = {name: payloads[name] for name in references.names & payloads.keys()}
    return Values({**values, "run": about(run)} if "run" in references.names else values)


def asking(wanted: SlotsPlan, number: int, results: Mapping[str, bytes]) -> Asking:
    """What these results of the expressions, as JSON, come to. Raises ExpressionFailed for what is none of that."""
    scope = wanted.limits[number].scope
    texts = {what: _text(results[what], what, scope) for what in (KEY, FAIR_BY) if what in results}
    priority = wanted.priority if isinstance(wanted.priority, int) else _priority(results[PRIORITY])
    return Asking(texts.get(KEY), priority, texts.get(FAIR_BY))


def _text(result: bytes, what: str, scope: str) -> str:
    """A value as its text: a string as it is, anything else but an array or an object as JSON."""
    if result[:1] in (b"[", b"{"):
        kind = "an array" if result[:1] == b"[" else "an object"
        raise ExpressionFailed(f"{what} of the limit {quoted(scope)} gives {kind}: its value must have a text")
    text = str(msgspec.json.decode(result)) if result[:1] == b'"' else result.decode()
    if len(text) > LIMIT_KEY_CHARS_MAX:
        most = f"{LIMIT_KEY_CHARS_MAX} is the most"
        raise ExpressionFailed(f"{what} of the limit {quoted(scope)} gives a text of {len(text)} characters, {most}")
    return text


def _priority(result: bytes) -> int:
    value = msgspec.json.decode(result)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > PRIORITY_MAX:
        given = result.decode()[:64]
        raise ExpressionFailed(
            f"priority gives {given}: it must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
        )
    return value
