"""What an async function iterates stays as it is meanwhile: another task may change a dict at every await."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("engine", "broker", "actors", "http", "client", "worker", "cli", "config", "telemetry")
VIEWS = frozenset({"keys", "values", "items"})
WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield)

BROKEN = """
async def close(self):
    for queue in self._open.values():
        if queue.is_open:
            await queue.close()
"""
RIGHT = """
async def close(self):
    for queue in list(self._open.values()):
        await queue.close()
    for queue in self._open.values():
        queue.forget()
"""


def iterated_across_waits(tree: ast.AST) -> Iterator[int]:
    """Lines that iterate a view of somebody's dict and wait in the loop's body."""
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            for loop in ast.walk(function):
                if isinstance(loop, ast.For) and _is_view(loop.iter) and any(map(_waits, loop.body)):
                    yield loop.lineno


def _is_view(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in VIEWS:
        return False
    return isinstance(node.func.value, ast.Attribute)  # a name is the function's own


def _waits(node: ast.AST) -> bool:
    return any(isinstance(part, WAITS) for part in ast.walk(node))


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_shared_dict_is_iterated_across_an_await(folder: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): list(iterated_across_waits(ast.parse(path.read_text())))
        for path in (ROOT / folder).rglob("*.py")
    }

    assert {} == {name: lines for name, lines in found.items() if lines}


def test_the_rule_sees_what_it_forbids() -> None:
    assert [3] == list(iterated_across_waits(ast.parse(BROKEN)))
    assert [] == list(iterated_across_waits(ast.parse(RIGHT)))
