#!/usr/bin/env python3
"""What expressions cost: to compile, to evaluate over small and large values, at their bounds, in a child process.

docs/adr/0020-expressions.md rests on it. Prints microseconds of CPU, the best of several repeats.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Raw

from penstock.actors.evaluation.evaluator import Evaluator
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import compile_template

REPEATS = 5
SCOPE = Scope(names=frozenset({"input"}))
WHEN = compile_expression("input.total > 100", SCOPE, "bool")
WITH = compile_template(
    {"user": "${{ input.user }}", "total": "${{ input.total * 1.2 }}", "note": "for ${{ input.user }}"}, SCOPE, "with"
)
LONG = compile_expression("input.all(x, input.exists(y, y == x))", SCOPE)
AT_BOUNDS = {
    "elements searched": ("input.all(x, -1 in input || true)", list(range(1700))),
    "lists compared": ("input.all(x, input == input)", [[number] for number in range(3000)]),
    "text searched": ("input.n.all(x, !input.t.contains('zz'))", {"n": [1] * 9999, "t": "ab" * 50_000}),
    "regular expression": ("input.matches('a[ab]{12}c')", "abb" * 300_000),
    "long body": ("input.all(x, " + " && ".join(["x + 1 > 0"] * 300) + ")", [1] * 9999),
}


def main() -> None:
    show("compile a condition", best(lambda: compile_expression("input.total > 100", SCOPE), 500))
    over_an_order(order(2), 20_000)
    over_an_order(order(40_000), 20)
    for name, (text, given) in AT_BOUNDS.items():
        at_a_bound(name, text, Raw(json.dumps(given).encode()))
    asyncio.run(in_process())


def over_an_order(written: Raw, calls: int) -> None:
    show(f"condition, {len(bytes(written))} bytes", best(lambda: WHEN.holds(values(written)), calls))
    show("condition and template of three fields", best(lambda: both(values(written)), calls))
    show("the same, and whether it is heavy", best(lambda: both_if_light(values(written)), calls))


def at_a_bound(name: str, text: str, written: Raw) -> None:
    expression = compile_expression(text, SCOPE)
    show(f"at the bound: {name}", best(lambda: end(expression, values(written)), 1))


def order(lines: int) -> Raw:
    listed = [{"sku": f"a{number}", "n": number} for number in range(lines)]
    return Raw(json.dumps({"user": "ada", "total": 120, "lines": listed}, separators=(",", ":")).encode())


def values(written: Raw) -> Values:
    return Values({"input": written})


def both(given: Values) -> None:
    WHEN.holds(given)
    WITH.json(given)


def both_if_light(given: Values) -> None:
    if not (WHEN.is_heavy(given) or WITH.is_heavy(given)):
        both(given)


def end(expression: Any, given: Values) -> None:
    with suppress(ExpressionFailed):
        expression.json(given)


async def in_process() -> None:
    """The wall time of an evaluation there, and the CPU time of the same here."""
    written = Raw(json.dumps(list(range(30))).encode())
    async with Evaluator() as evaluator:
        await evaluator.json(LONG, values(written))
        began = time.perf_counter()
        for _ in range(200):
            await evaluator.json(LONG, values(written))
        show("in a process of its own, of wall time", (time.perf_counter() - began) / 200 * 1e6)
    show("the same here", best(lambda: LONG.json(values(written)), 200))


def best(call: Callable[[], object], calls: int) -> float:
    call()
    return min(timed(call, calls) for _ in range(REPEATS))


def timed(call: Callable[[], object], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - began) / calls * 1e6


def show(name: str, microseconds: float) -> None:
    print(f"{name:50} {microseconds:12,.1f}")


if __name__ == "__main__":
    main()
