"""`@task`: a function that carries out steps, with what its steps have unless they say otherwise."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

from msgspec import Struct

from penstock.authoring.options import TaskOptions
from penstock.engine.definition.identifiers import problem_with_task, quoted
from penstock.engine.errors import Invalid

MARK = "__penstock_task__"
UNNAMED = frozenset({"<lambda>", ""})

F = TypeVar("F", bound=Callable[..., Any])


class Task(Struct, frozen=True):
    """A function under its task type. `input` and `output` are its types, Any where it does not say; None: it takes no
    input, or gives no output."""

    name: str
    function: Callable[..., Any]
    options: Mapping[str, Any]
    input: Any
    output: Any


class _Mark(Struct, frozen=True):
    """What the decorator leaves at the function."""

    name: str
    options: Mapping[str, Any]


@overload
def task(name: F, /) -> F: ...
@overload
def task(name: str | None = None, /, **options: Unpack[TaskOptions]) -> Callable[[F], F]: ...
def task(name: Any = None, /, **options: Any) -> Any:
    """Make a function a task, under its own name or the one given; it stays callable as it is.

    The options are those of steps that workers carry out (`retries`, `timeout`, ...): each step of it has them unless
    it says otherwise. Raises Invalid for a name that no task can have, and for an unknown option.
    """
    if callable(name):
        return _marked(name, None, {})
    if unknown := options.keys() - typing.get_type_hints(TaskOptions).keys():
        raise Invalid(*(f"task: there is no option {quoted(key)}" for key in sorted(unknown)))
    return lambda function: _marked(function, name, options)


def _marked(function: F, name: str | None, options: Mapping[str, Any]) -> F:
    found = _Mark(getattr(function, "__name__", "") if name is None else name, options)
    if problem := problem_with_task("task type", found.name):
        raise Invalid(problem)
    setattr(function, MARK, found)
    return function


def task_of(function: Callable[..., Any]) -> Task:
    """The task that a function is, also one without the decorator. Raises Invalid for one without a name, and for
    annotations that cannot be read."""
    mark = getattr(function, MARK, None)
    if mark is None:
        name = getattr(function, "__name__", "")
        if name in UNNAMED:
            raise Invalid(f'{function!r} has no name: give it one with @task("name")')
        mark = _Mark(name, {})
    first = _first_parameter(function)
    given = None if first is None else _annotation(function, mark.name, first)
    return Task(mark.name, function, mark.options, given, _annotation(function, mark.name, "return"))


def _first_parameter(function: Callable[..., Any]) -> str | None:
    return next(iter(inspect.signature(function).parameters), None)


def _annotation(function: Callable[..., Any], name: str, part: str) -> Any:
    """The type that an annotation names. Others are not looked at: they may name what is imported for checkers only."""
    annotations = getattr(inspect.unwrap(function), "__annotations__", {})
    if part not in annotations:
        return Any
    alone = types.SimpleNamespace(__annotations__={part: annotations[part]})
    try:
        return typing.get_type_hints(alone, *_names_of(function), include_extras=True)[part]
    except (NameError, TypeError, SyntaxError) as error:
        what = "output" if part == "return" else "input"
        text = f"task {quoted(name)}: the type of its {what}, {annotations[part]!r}, cannot be read: {error}"
        raise Invalid(text) from error


def _names_of(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the function's annotations may name: the names of its module, and those of the functions around it that it
    uses."""
    inner = inspect.unwrap(function)
    around = inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) else {}
    return getattr(inner, "__globals__", {}), dict(around)
