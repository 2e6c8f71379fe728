"""Puts together the JSON of one step, from the options of a method of `Workflow`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from msgspec import Struct

from penstock.authoring.options import AttemptOptions, CommonOptions, HandlerTask, TaskOptions, WorkerOptions, given
from penstock.authoring.references import StepRef
from penstock.authoring.tasks import Task, task_of
from penstock.authoring.templates import condition, templated, text, time_span
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid

RETRIES_DELAY = "5s"  # of the short form `retries`, which handlers have not
_READ = re.compile(r'steps(?:\.(?P<name>\w+)|\["(?P<id>[^"]+)"\])\.(?:output|status)')


class Draft(Struct):
    """A step without its `depends_on`: `after` has the ids if they were given, and None where they follow from what the
    step reads. `tasks` are the functions that it brings along."""

    id: str
    document: dict[str, Any]
    after: list[str] | None
    tasks: list[Task]


class Target(Struct):
    """What carries out a step: a task type, with the function if there is one."""

    name: str
    task: Task | None

    @property
    def output(self) -> Any:
        return Any if self.task is None else self.task.output


def target(of: Any) -> Target:
    """Raises Invalid for what is neither a function nor the name of a task type."""
    if isinstance(of, str):
        return Target(of, None)
    if not callable(of):
        raise Invalid(f"a step needs a function or the name of a task type, not {of!r}")
    found = task_of(of)
    return Target(found.name, found)


def draft(
    step_id: str,
    options: Mapping[str, Any],
    *,
    kind: str = "normal",
    by: Target | None = None,
    config: Mapping[str, Any] | None = None,
) -> Draft:
    """The step. Raises Invalid for options that there are not, or whose values cannot be JSON."""
    label, merged = (
        f"step {quoted(step_id)}",
        _merged({} if by is None or by.task is None else by.task.options, options),
    )
    if unknown := merged.keys() - _READ_BY.keys() - {"after"}:
        raise Invalid(*(f"{label}: there is no option {quoted(key)}" for key in sorted(unknown)))
    tasks = [] if by is None or by.task is None else [by.task]
    document: dict[str, Any] = {"id": step_id}
    if kind != "normal":
        document["type"] = kind
    if by is not None:
        document["task"] = by.name
    for key, value in merged.items():
        if key in HANDLERS:
            document[key], found = handler_document(value, f"{label}: {key}")
            tasks += found
        elif key != "after":
            document[key] = _READ_BY[key](value, f"{label}: {key}")
    if config:
        document["config"] = {key: _config(key, value, f"{label}: config: {key}") for key, value in config.items()}
    return Draft(step_id, document, _ids(merged.get("after"), label), tasks)


def divided(options: Mapping[str, Any], kind: Any, **names: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What belongs into a step's `config`, and the other options. `names`: options with another name there."""
    base = next(one for one in _BASES if one <= kind.__annotations__.keys())
    own = kind.__annotations__.keys() - base | _OF_CONFIG
    found = given(**options)
    config = {names.get(key, key): value for key, value in found.items() if key in own}
    return config, {key: value for key, value in found.items() if key not in own}


def _merged(of_task: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the step before those of its task; `retry` and `retries` are two forms of one."""
    own = given(**options)
    hidden = {"retry", "retries"} if own.keys() & {"retry", "retries"} else set()
    return {key: value for key, value in given(**of_task).items() if key not in hidden} | own


def _ids(after: Any, label: str) -> list[str] | None:
    if after is None:
        return None
    found = []
    for one in [after] if isinstance(after, str | StepRef) else after:
        if not isinstance(one, str | StepRef):
            raise Invalid(f"{label}: after: {one!r} is no step and no id of one")
        found.append(one if isinstance(one, str) else one.id)
    return list(dict.fromkeys(found))


def handler_document(value: Any, place: str) -> tuple[Any, list[Task]]:
    """The JSON of `on_failure` or `compensate`, with the functions that it brings along."""
    if isinstance(value, Mapping):
        return templated(value, place), []
    found = value if isinstance(value, HandlerTask) else HandlerTask(value, {})
    by = target(found.task)
    of_task = {} if by.task is None else dict(by.task.options)
    if "retries" in of_task:
        of_task["retry"] = {"max_attempts": of_task["retries"], "initial_delay": RETRIES_DELAY}
    known = {key: value for key, value in of_task.items() if key in ("retry", "timeout", "worker_group")}
    document = {"task": by.name}
    for key, each in (known | dict(found.document)).items():
        document[key] = _READ_BY[key](each, f"{place}: {key}")
    return document, [] if by.task is None else [by.task]


def retry_document(value: Any, place: str) -> Any:
    return _with_spans(value, place, ("initial_delay", "max_delay"))


def limits_document(value: Any, place: str) -> Any:
    """The array of limits; one limit may stand for an array, a number for its `limit`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [{"limit": value}]
    entries = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [_limit(entry, f"{place}[{number}]") for number, entry in enumerate(entries)]


def _limit(entry: Any, place: str) -> Any:
    if not isinstance(entry, Mapping):
        raise Invalid(f"{place} must be an object such as {{'limit': 1}}, not {entry!r}")
    texts = {key: text(value) if key in ("key", "fair_by") else value for key, value in entry.items()}
    return _with_spans(texts, place, ("per",))


def _with_spans(value: Any, place: str, spans: tuple[str, ...]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        key: time_span(each, f"{place}: {key}") if key in spans else templated(each, f"{place}: {key}")
        for key, each in value.items()
    }


def _config(key: str, value: Any, place: str) -> Any:
    return text(value) if key == "match" else time_span(value, place)


def _text(value: Any, place: str) -> Any:
    return text(value)


HANDLERS = ("on_failure", "compensate")
_BASES = [one.__annotations__.keys() for one in (WorkerOptions, AttemptOptions, CommonOptions)]  # the richest first
_OF_CONFIG = {"workflow", "url", "event", "on_item_failure"}  # options with a parameter of their own
_SPECIAL: dict[str, Callable[[Any, str], Any]] = {
    "when": lambda value, place: condition(value),
    "with": templated,
    "timeout": time_span,
    "retry": retry_document,
    "concurrency": limits_document,
    "rate_limit": limits_document,
    "priority": _text,
}
_NAMES = {key for kind in (CommonOptions, WorkerOptions, TaskOptions) for key in get_type_hints(kind)} - {"after"}
_READ_BY: dict[str, Callable[[Any, str], Any]] = {**dict.fromkeys(_NAMES, templated), **_SPECIAL}


def with_dependencies(drafts: Sequence[Draft]) -> list[dict[str, Any]]:
    """The steps with their `depends_on`. A step whose predecessors were not given comes after those that it reads."""
    read = _reads(drafts) if any(draft.after is None for draft in drafts) else {}
    return [_ordered(draft, read.get(draft.id, []) if draft.after is None else draft.after) for draft in drafts]


def _ordered(of: Draft, after: Sequence[str]) -> dict[str, Any]:
    document = dict(of.document)
    if after:
        document["depends_on"] = list(after)
    return document


def _reads(drafts: Sequence[Draft]) -> dict[str, list[str]]:
    """The steps that each step reads, of those before it, in their order."""
    from penstock.engine.validation import explained  # with the library of expressions, at the first definition only

    ids = [draft.id for draft in drafts]
    tried = [_ordered(draft, ids[:place] if draft.after is None else draft.after) for place, draft in enumerate(drafts)]
    found: dict[str, set[str]] = {}
    for one in explained({"name": "w", "steps": tried}):
        named = (_READ.fullmatch(name) for name in one.reads)
        found.setdefault(one.step, set()).update(match["name"] or match["id"] for match in named if match)
    return {step_id: [each for each in ids if each in named] for step_id, named in found.items()}
