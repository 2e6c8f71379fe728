"""The example of a planner in docs/workflows.md does what the page says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson

from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.state import RunStatus
from penstock.engine.validation import parse
from tests.engine.build import DIGEST, Play, inputs

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"


class ShownWorker:
    """Keeps the task functions that the page shows, by task type."""

    def __init__(self) -> None:
        self.tasks: dict[str, Callable[..., Any]] = {}

    def task(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: self.tasks.setdefault(name, function)


def shown(language: str) -> str:
    section = PAGE.read_text().split("\n## Planners\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)\n```", section, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_plan_of_the_example_is_carried_out() -> None:
    worker = ShownWorker()
    exec(shown("python"), {"worker": worker})
    play = Play(compile_workflow(parse(orjson.loads(shown("json"))), DIGEST))
    play.start()
    question = {"topics": ["cats", "dogs"]}
    assert inputs(play.complete("question", question)) == {"plan": question}

    plan = asyncio.run(worker.tasks["choose-tools"](question, SimpleNamespace(previous_error=None)))

    assert inputs(play.carry_out(play.complete("plan", plan))) == {"plan.search-0": "cats", "plan.search-1": "dogs"}
    play.complete("plan.search-0", "purr")
    assert inputs(play.complete("plan.search-1", "bark")) == {"plan.summary": {"search-0": "purr", "search-1": "bark"}}
    assert inputs(play.complete("plan.summary", "both")) == {"report": "both"}
    play.complete("report", "done")
    play.settle()
    assert play.run.status is RunStatus.COMPLETED
