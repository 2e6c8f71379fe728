"""What takes long is evaluated in a process of its own, gives the same there, and survives its death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from penstock.actors.evaluation.evaluator import Evaluator
from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import compile_expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import compile_template
from tests.support.waiting import until_true

SCOPE = Scope(names=frozenset({"input", "run"}), steps=frozenset({"fetch"}))
LONG = "input.all(x, input.all(y, x + y >= 0))"


def values(given_input: Any, output: Any = None) -> Values:
    written = Raw(json.dumps(given_input).encode())
    step = {"output": Raw(json.dumps(output).encode()), "status": "completed"}
    return Values({"input": written, "run": {"id": "a"}, "steps": {"fetch": step}})


@pytest.fixture
async def evaluator() -> AsyncIterator[Evaluator]:
    async with Evaluator() as opened:
        yield opened


def child_ids() -> list[int]:
    """The processes that this one has started and that live."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if "evaluation.process" in Path(f"/proc/{pid}/cmdline").read_text()]


async def test_what_is_quick_needs_no_process(evaluator: Evaluator) -> None:
    quick = compile_expression("input.n * 2", SCOPE)

    assert await evaluator.json(quick, values({"n": 21})) == b"42"
    assert await evaluator.holds(compile_expression("input == 1", SCOPE), values(1)) is True
    assert child_ids() == []


async def test_what_takes_long_gives_the_same_in_its_process(evaluator: Evaluator) -> None:
    numbers = list(range(90))
    template = compile_template(
        {"all": f"${{{{ {LONG} }}}}", "s": ["x ${{ steps.fetch.status }} ${{ run.id }}", "${{ steps.fetch.output }}"]},
        SCOPE,
        "with",
    )

    assert await evaluator.holds(compile_expression(LONG, SCOPE), values(numbers)) is True
    assert child_ids() != []
    assert await evaluator.json(template, values(numbers, {"a": 1})) == template.json(values(numbers, {"a": 1}))


async def test_secrets_stay_in_its_process_too(evaluator: Evaluator) -> None:
    template = compile_template(f"${{{{ {LONG} }}}} ${{{{ secret.A }}}}", SCOPE, "with", secrets=True)

    assert await evaluator.json(template, values(list(range(90)))) == b'["true ",{"secret":"A"}]'


async def test_failures_are_the_same_in_its_process(evaluator: Evaluator) -> None:
    text = "input.map(x, input.filter(y, y == x)[0] + 'a')"
    over = compile_expression(LONG, SCOPE)
    for expression, given_input in ((compile_expression(text, SCOPE), list(range(50))), (over, [1] * 200)):
        with pytest.raises(ExpressionFailed) as here:
            expression.json(values(given_input))
        with pytest.raises(ExpressionFailed) as there:
            await evaluator.json(expression, values(given_input))
        assert str(there.value) == str(here.value)
    with pytest.raises(ExpressionFailed, match="it gives an array, not true or false"):
        await evaluator.holds(compile_expression("input.map(x, input.map(y, y))", SCOPE), values(list(range(80))))


async def test_a_process_that_was_killed_is_replaced(evaluator: Evaluator) -> None:
    expression = compile_expression(LONG, SCOPE)
    assert await evaluator.holds(expression, values(list(range(80)))) is True
    (first,) = child_ids()

    os.kill(first, signal.SIGKILL)

    assert await evaluator.holds(expression, values(list(range(80)))) is True
    (second,) = child_ids()
    assert second != first


async def test_a_process_that_dies_over_a_request_gets_it_again(evaluator: Evaluator) -> None:
    expression = compile_expression("input.all(x, !(-1 in input))", SCOPE)
    assert await evaluator.holds(compile_expression(LONG, SCOPE), values(list(range(80)))) is True
    (first,) = child_ids()
    os.kill(first, signal.SIGSTOP)

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(evaluator.holds(expression, values(list(range(1000)))))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)

    assert asked.result() is True


async def test_many_wait_for_one_another_and_the_loop_goes_on(evaluator: Evaluator) -> None:
    expression = compile_expression("input.all(x, !(-1 in input))", SCOPE)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        asked = group.create_task(evaluator.holds(expression, values(list(range(1700)))))
        others = [group.create_task(evaluator.json(expression, values([n] * 300))) for n in range(20)]
        group.create_task(count_turns())

    assert asked.result() is True
    assert [other.result() for other in others] == [b"true"] * 20
    assert turns > 100, "in the loop itself it would be none"


async def test_a_caller_that_leaves_takes_nobodys_answer_away(evaluator: Evaluator) -> None:
    long = compile_expression("input.all(x, !(-1 in input))", SCOPE)
    asked = asyncio.ensure_future(evaluator.holds(long, values(list(range(1700)))))
    await until_true(lambda: child_ids() != [])
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert await evaluator.json(compile_expression("input.map(x, x in input)", SCOPE), values([1] * 400)) == (
        b"[" + b",".join([b"true"] * 400) + b"]"
    )


async def test_nothing_stays_when_the_block_is_left() -> None:
    async with Evaluator() as evaluator:
        assert await evaluator.holds(compile_expression(LONG, SCOPE), values(list(range(80)))) is True
        assert len(child_ids()) == 1

    assert child_ids() == []
