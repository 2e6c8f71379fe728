"""Task functions: which arguments a function takes and whether it is async, determined once, when it is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.engine.definition.identifiers import problem_with_task
from penstock.engine.errors import Invalid
from penstock.worker.local_limits import UNLIMITED, TaskLimits

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
ARGUMENTS_MAX = 2


class TaskFunction(NamedTuple):
    """`takes` counts its arguments: none, the input, or the input and a context. `limits` are those of this process."""

    name: str
    call: Callable[..., Any]
    takes: int
    is_async: bool
    limits: TaskLimits = UNLIMITED


def task_function(name: str | None, function: Callable[..., Any], limits: TaskLimits = UNLIMITED) -> TaskFunction:
    """The function under its task type (None: the function's own name). Raises Invalid with everything that is
    wrong."""
    task = getattr(function, "__name__", "") if name is None else name
    parameters = inspect.signature(function).parameters.values()
    found = [problem_with_task("task type", task), *_problems(task, function, list(parameters)), *limits.problems(task)]
    if problems := [problem for problem in found if problem]:
        raise Invalid(*problems)
    return TaskFunction(task, function, sum(one.kind in POSITIONAL for one in parameters), _is_async(function), limits)


def _problems(task: str, function: Callable[..., Any], parameters: list[inspect.Parameter]) -> list[str]:
    problems = []
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problems.append(f'task "{task}": a generator cannot be a task function')
    if (
        not all(_is_passed(one) for one in parameters)
        or sum(one.kind in POSITIONAL for one in parameters) > ARGUMENTS_MAX
    ):
        shown = ", ".join(map(str, parameters))
        problems.append(f'task "{task}": a task function takes (), (input) or (input, ctx), not ({shown})')
    return problems


def _is_passed(parameter: inspect.Parameter) -> bool:
    """Whether a call with positional arguments only is possible with this parameter."""
    return parameter.kind in POSITIONAL or (
        parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is not inspect.Parameter.empty
    )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
