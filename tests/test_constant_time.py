"""Nothing that is secret is compared by `==`: how long that takes tells how much of a guess is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("engine", "broker", "actors", "http", "client", "worker", "cli", "config", "telemetry")
SECRET = re.compile(r"token|secret|password|signature|sha256|hmac|expected|authorization|bearer", re.IGNORECASE)
BY_VALUE = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
TAKES_ITS_TIME = {
    "http/middleware/credentials.py",
    "http/middleware/key_ring.py",
    "http/middleware/sessions.py",
    "engine/trigger/signatures.py",
    "actors/control/approvals.py",
}

# What only sounds like one: the result that a demonstration computes anew.
NO_SECRETS = {
    "found == expected",
    "name in plan.config.secret_headers",  # a header's name
    "name not in _FOR_ONE_HOST | request.with_secrets",  # as above
    "name == API_TOKEN_NAME",  # the word under which the log has it
    "source.auth == TOKEN",  # the word of a trigger's definition
    "caller not in (BY_BRIDGE_TOKEN, EVERYBODY)",  # names of callers
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def comparisons(tree: ast.AST) -> list[str]:
    """Comparisons by value with something in them that is called like a secret. What stands in the source itself is
    none."""
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare) and _is_suspect(node)]


def _is_suspect(node: ast.Compare) -> bool:
    operands = [node.left, *node.comparators]
    if any(isinstance(one, ast.Constant) for one in operands):
        return False
    return any(isinstance(one, BY_VALUE) for one in node.ops) and any(SECRET.search(_words(one)) for one in operands)


def _words(operand: ast.expr) -> str:
    """The names in an operand: what it is called, and what it is computed by."""
    nodes = list(ast.walk(operand))
    names = [
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute)
    ]
    constants = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    return " ".join((*names, *constants))


def test_no_secret_is_compared_by_value() -> None:
    found = [(name, text) for name, tree in sources() for text in comparisons(tree) if text not in NO_SECRETS]
    assert [] == found


def test_secrets_are_compared_where_they_come_in() -> None:
    found = {name for name, tree in sources() if "compare_digest(" in ast.unparse(tree)}
    assert TAKES_ITS_TIME == found


@pytest.mark.parametrize(
    "text",
    [
        "given == token",
        "self._token != found",
        "token_hash(given) == kept",
        "header in (f'Bearer {x}',)",
        "kept.sha256 == x",
    ],
)
def test_a_comparison_by_value_would_be_found(text: str) -> None:
    assert [text] == comparisons(ast.parse(text))


@pytest.mark.parametrize(
    "text", ["token is None", "compare_digest(token, expected)", "name == other", "not token", "token == ''"]
)
def test_what_compares_no_value_is_let_through(text: str) -> None:
    assert [] == comparisons(ast.parse(text))
