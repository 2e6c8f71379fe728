"""Workflow definitions as users write them and as the store holds them.

`engine.validation.parse` makes these from an untyped document and checks every rule. Other code relies on these rules.
Durations are normalised text (`1h30m`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine import formats


class Retry(Struct, frozen=True, omit_defaults=True):
    """`max_attempts` counts retries after the first execution; delays are duration text."""

    max_attempts: int
    strategy: str = "fixed"
    initial_delay: str = "0s"
    max_delay: str | None = None
    multiplier: float = 2.0


class SkipIf(Struct, frozen=True):
    """Skip the step when the comparison of `field` (a dot path) of `step_id`'s output with `value` holds."""

    step_id: str
    field: str
    op: str
    value: Raw


class HandlerDef(Struct, frozen=True, omit_defaults=True):
    """A task that follows from what has become of a step. Without a `retry`, `timeout` or `worker_group` of its own it
    has the workflow's default retry, and the timeout and the group of the step."""

    task: str
    input: Raw | UnsetType = msgspec.field(default=UNSET, name="with")
    retry: Retry | None = None
    timeout: str | None = None
    worker_group: str | None = None


class FailureRunDef(Struct, frozen=True, omit_defaults=True):
    """A run of `workflow` that is started when a run has failed, with its latest version then. `input` (on the wire
    `with`) and the values of `labels` have templates."""

    workflow: str
    input: Raw | UnsetType = msgspec.field(default=UNSET, name="with")
    labels: dict[str, str] | None = None


class ConcurrencyDef(Struct, frozen=True, omit_defaults=True):
    """So many at a time, of one value of `key`, an expression. Without a `scope` the name of what has the limit.
    `on_limit` is a run's; `fair_by`, an expression, gives the value between whose takers turns are taken."""

    limit: int
    key: str | None = None
    scope: str | None = None
    on_limit: str = "queue"
    fair_by: str | None = None


class RateDef(Struct, frozen=True, omit_defaults=True):
    """So many in each span of `per` (duration text); with `burst` by a bucket of so many tokens. Else as
    ConcurrencyDef."""

    limit: int
    per: str
    burst: int | None = None
    key: str | None = None
    scope: str | None = None


class Step(Struct, frozen=True, omit_defaults=True):
    """`task` is empty for a step that no worker carries out. `type` names a kind of step (engine/run/kinds), and
    `config` is what only this kind knows, in the normal form that its validation gives. `when` is an expression, and
    `input` (on the wire `with`) is any JSON with templates in its strings. `on_failure` is carried out when the step
    has failed for good, `compensate` when it has completed and its run fails. `concurrency`, `rate_limit` and
    `priority`, a number or an expression, are of its executions. `name` and `description` are for people."""

    id: str
    task: str = ""
    type: str = "normal"
    depends_on: tuple[str, ...] = ()
    timeout: str | None = None
    retry: Retry | None = None
    retries: int | None = None
    skip_if: SkipIf | None = None
    metadata: dict[str, str] = {}
    worker_group: str | None = None
    config: dict[str, Any] | None = None
    when: str | None = None
    input: Raw | UnsetType = msgspec.field(default=UNSET, name="with")
    name: str | None = None
    description: str | None = None
    on_failure: HandlerDef | None = None
    compensate: HandlerDef | None = None
    concurrency: tuple[ConcurrencyDef, ...] = ()
    rate_limit: tuple[RateDef, ...] = ()
    priority: int | str | None = None

    def handlers(self) -> Iterator[tuple[str, HandlerDef]]:
        """What follows from the end of the step, by its field."""
        if self.on_failure is not None:
            yield "on_failure", self.on_failure
        if self.compensate is not None:
            yield "compensate", self.compensate


class WorkflowDef(Struct, frozen=True, omit_defaults=True):
    """`concurrency`, `rate_limit` and `priority`, a number or an expression, are of its runs."""

    name: str
    steps: tuple[Step, ...]
    version: str = msgspec.field(default="1")
    timeout: str | None = None
    default_retry: Retry | None = None
    input_schema: Raw | UnsetType = UNSET
    description: str | None = None
    sticky: str | None = None
    on_failure: FailureRunDef | None = None
    concurrency: tuple[ConcurrencyDef, ...] = ()
    rate_limit: tuple[RateDef, ...] = ()
    priority: int | str | None = None


def to_json(definition: WorkflowDef) -> bytes:
    """The canonical JSON form: every field in a fixed order, `version` and `type` always written, and the format that a
    reader must know."""
    document = _document(definition)
    if has_limits(definition) or any(map(has_limits, definition.steps)):
        document["v"] = 3
    elif definition.on_failure is not None or any(map(_is_new, definition.steps)):
        document["v"] = 2
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def as_registered(definition: WorkflowDef) -> bytes:
    """As `to_json`, in the form in which it can be registered."""
    return orjson.dumps(_document(definition), option=orjson.OPT_SORT_KEYS)


def _document(definition: WorkflowDef) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(definition, builtin_types=(Raw,))
    document.setdefault("version", definition.version)
    for key in ("input_schema",):
        if key in document:
            document[key] = orjson.Fragment(bytes(document[key]))
    document["steps"] = [_step_document(step) for step in definition.steps]
    follows = definition.on_failure
    if follows is not None and not isinstance(follows.input, UnsetType):
        document["on_failure"]["with"] = orjson.Fragment(bytes(follows.input))
    return document


def _step_document(source: Step) -> dict[str, Any]:
    step: dict[str, Any] = msgspec.to_builtins(source, builtin_types=(Raw,))
    step.setdefault("type", source.type)
    if source.skip_if is not None:
        step["skip_if"]["value"] = orjson.Fragment(bytes(source.skip_if.value))
    if not isinstance(source.input, UnsetType):
        step["with"] = orjson.Fragment(bytes(source.input))
    for key, handler in source.handlers():
        if not isinstance(handler.input, UnsetType):
            step[key]["with"] = orjson.Fragment(bytes(handler.input))
    return step


def steps_to_json(steps: Sequence[Step]) -> bytes:
    """The canonical JSON form of some steps: an array."""
    return orjson.dumps([_step_document(step) for step in steps], option=orjson.OPT_SORT_KEYS)


def steps_from_json(body: bytes) -> tuple[Step, ...]:
    """Decode what `steps_to_json` has written."""
    return msgspec.json.decode(body, type=tuple[Step, ...])


def _is_new(step: Step) -> bool:
    """Whether a reader of format 1 would misread the step: it would leave its fields out."""
    return step.when is not None or not isinstance(step.input, UnsetType) or any(step.handlers())


def has_limits(of: WorkflowDef | Step) -> bool:
    """Whether a reader of format 2 would misread it: it would leave its limits out."""
    return bool(of.concurrency) or bool(of.rate_limit) or of.priority is not None


def run_limits(definition: WorkflowDef) -> int:
    """How many limits a run of the workflow waits for before it begins."""
    return len(definition.concurrency) + len(definition.rate_limit)


def as_document(step: Step) -> dict[str, Any]:
    """The fields of a step that hold expressions, as they are in a definition's JSON."""
    document: dict[str, Any] = {"when": step.when, "config": step.config}
    if not isinstance(step.input, UnsetType):
        document["with"] = orjson.loads(bytes(step.input))
    for key, handler in step.handlers():
        if not isinstance(handler.input, UnsetType):
            document[key] = {"with": orjson.loads(bytes(handler.input))}
    return document | limits_document(step)


def limits_document(of: WorkflowDef | Step) -> dict[str, Any]:
    """The fields with limits, as they are in a definition's JSON."""
    if not has_limits(of):
        return {}
    limits = {"concurrency": of.concurrency, "rate_limit": of.rate_limit, "priority": of.priority}
    return {key: msgspec.to_builtins(value) for key, value in limits.items() if value not in ((), None)}


def from_json(body: bytes) -> WorkflowDef:
    """Decode a definition from the store; other documents go through `validation.parse`. Raises NeedsUpgrade."""
    formats.check(body)
    return msgspec.json.decode(body, type=WorkflowDef)


def digest(body: bytes) -> str:
    """32 hex characters that identify exactly these bytes (the first half of their SHA-256)."""
    return sha256(body).hexdigest()[:32]
