"""Tasks are started in config/process/background.py and nowhere else: what is started elsewhere can die unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "engine",
    "broker",
    "actors",
    "http",
    "client",
    "authoring",
    "worker",
    "cli",
    "config",
    "telemetry",
    "demo",
    "testing",
)
STARTING = frozenset({"create_task", "ensure_future", "gather", "TaskGroup", "run_coroutine_threadsafe"})
ALLOWED = {
    "config/process/background.py": {"create_task"},
    "worker/tasks/blocking.py": {"run_coroutine_threadsafe"},
}  # the latter's caller awaits it


def _started(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in STARTING:
                yield name


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_task_is_started_but_by_the_one_place_that_watches_it(folder: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix(): set(_started(path.read_text())) for path in (ROOT / folder).rglob("*.py")
    }

    assert {path: names for path, names in found.items() if names - ALLOWED.get(path, set())} == {}


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())",
        "loop.create_task(work())",
        "asyncio.ensure_future(work())",
        "await asyncio.gather(*works)",
        "from asyncio import create_task\ncreate_task(work())",
        "asyncio.get_running_loop().create_task(work())",
    ],
)
def test_each_way_to_start_a_task_is_found(line: str) -> None:
    assert list(_started(line))
