"""Writes a definition once more, in Python: each step by its method, each field by its option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

from penstock.authoring import Workflow, failure_run, handler

ROOT = Path(__file__).resolve().parents[2]
IN_A_PAGE = re.compile(r"```json\n(\{.*?\n\})\n```", re.DOTALL)
BY_TASK = {"normal": "step", "agent_loop": "agent_loop", "planner": "planner"}


def shown_definitions() -> dict[str, dict[str, Any]]:
    """Every definition of the pages, the examples, the demo and the recorded scenarios, by where it stands."""
    found: dict[str, Any] = {}
    for page in sorted((*ROOT.glob("docs/**/*.md"), ROOT / "README.md")):
        for number, body in enumerate(IN_A_PAGE.findall(page.read_text())):
            found[f"{page.relative_to(ROOT)}[{number}]"] = body
    for folder in ("demo", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.json")):
            if "node_modules" not in path.parts:
                found[str(path.relative_to(ROOT))] = path.read_text()
    read = {place: _json(body) for place, body in found.items()}
    return {place: one for place, one in read.items() if isinstance(one, dict) and {"name", "steps"} <= one.keys()}


def _json(body: str) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def rebuilt(definition: dict[str, Any]) -> Workflow[Any]:
    """The workflow, written with the methods of `Workflow`."""
    options = {key: value for key, value in definition.items() if key not in ("name", "steps", "$schema")}
    if "on_failure" in options:
        options["on_failure"] = failure_run(**_renamed(options["on_failure"]))
    flow: Workflow[Any] = Workflow(definition["name"], **options)
    for step in definition["steps"]:
        _add(flow, {key: value for key, value in step.items() if value is not None})
    return flow


def _add(flow: Workflow[Any], step: dict[str, Any]) -> None:
    kind, config = step.pop("type", "normal"), step.pop("config", step.pop("loop", None)) or {}
    options = {"after": step.pop("depends_on", []), **_renamed(step)}
    for field in ("on_failure", "compensate"):
        if field in options:
            options[field] = handler(**_renamed(options[field]))
    match kind:
        case "http" if "timeout" in config:
            config = {**config, "request_timeout": config["timeout"]}
            del config["timeout"]
        case "approval":
            names = {"description": "question", "metadata": "details"}
            config = {names.get(key, key): value for key, value in config.items()}
            if "timeout" in options and "timeout" not in config:
                config["timeout"] = options.pop("timeout")
    method = getattr(flow, BY_TASK.get(kind, kind))
    task = [options.pop("task")] if "task" in options else []
    method(*task, **options, **config)


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    return {{"with": "input"}.get(key, key): value for key, value in fields.items()}
