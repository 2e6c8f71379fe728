"""The workflows and workers that a file of the user's has, and the workers that serve all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from penstock.authoring import Workflow
from penstock.cli.dev.messages import CodeProblem
from penstock.cli.dev.problems import line_of
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid
from penstock.worker import Worker


class LoadedCode(NamedTuple):
    """What is served. `unserved` are workflows without functions: they are registered, and that is all."""

    workflows: Sequence[Workflow[Any]]
    workers: Sequence[Worker]
    unserved: Sequence[Workflow[Any]]

    @property
    def tasks(self) -> list[str]:
        return sorted({name for worker in self.workers for name in worker.task_types})


def load(app: Path) -> LoadedCode:
    """Import the file, with its folder in front of `sys.path` and under its own name, as `import app` would. Raises
    what the file raises, Invalid if it has neither a workflow nor a worker, Conflict for two functions of a task."""
    sys.path.insert(0, str(app.parent))
    spec = spec_from_file_location(app.stem, app)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[app.stem] = module
    spec.loader.exec_module(module)
    found = _distinct(vars(module).values())
    flows = [value for value in found if isinstance(value, Workflow)]
    workers = [value for value in found if isinstance(value, Worker)]
    if not flows and not workers:
        raise Invalid(f"{app.name} has no Workflow and no Worker at its top level")
    return _served(flows, workers)


def problems_of(flows: Iterable[Workflow[Any]], app: Path) -> list[CodeProblem]:
    """What validation finds in the definitions, and those of the same name and version as one before them, each at the
    line that gives the workflow its name."""
    found, known = list[CodeProblem](), set[tuple[str, str]]()
    for flow in flows:
        named = f"workflow {quoted(flow.name)}"
        try:
            definition = flow.definition()
        except Invalid as error:
            place = line_of(flow, app)
            found += [CodeProblem(place, f"{named}: {problem}") for problem in error.problems]
            continue
        key = flow.name, definition.get("version", "1")
        if key in known:
            found.append(CodeProblem(line_of(flow, app), f"{named}: another one has the same name and version"))
        known.add(key)
    return found


def _served(flows: list[Workflow[Any]], workers: list[Worker]) -> LoadedCode:
    """The file's own workers, and one more for the workflows that none of them has."""
    own = [flow for worker in workers for flow in worker.workflows]
    left = [flow for flow in flows if all(flow is not known for known in own)]
    with_functions = [flow for flow in left if flow.tasks]
    if with_functions:
        workers = [*workers, Worker(workflows=with_functions)]
    return LoadedCode(_distinct([*own, *left]), workers, [flow for flow in left if not flow.tasks])


def _distinct(values: Iterable[Any]) -> list[Any]:
    """In order, each object once: workflows need not be hashable."""
    return list({id(value): value for value in values}.values())
