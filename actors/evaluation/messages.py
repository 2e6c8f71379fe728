"""What an evaluator and its process exchange: each message is its length in 8 bytes, then MessagePack."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.scope import Scope
from penstock.engine.expressions.template import Template

LENGTH_BYTES = 8


class EvaluationRequest(Struct, frozen=True, omit_defaults=True):
    """An expression, or a template with its `path`, as JSON, and the JSON of each value that it reads. `secrets` as
    `compile_template` takes it."""

    source: bytes
    scope: Scope
    path: str | None
    secrets: bool
    names: dict[str, bytes]
    outputs: dict[str, bytes]
    statuses: dict[str, bytes]


class EvaluationReply(Struct, frozen=True, omit_defaults=True):
    """The result as JSON, or why there is none."""

    result: bytes = b""
    failed: str | None = None


def request_for(what: Expression | Template, values: Values) -> EvaluationRequest:
    """Everything that the process needs to evaluate it."""
    reads = what.references
    template = what if isinstance(what, Template) else None
    return EvaluationRequest(
        msgspec.json.encode(what.text if isinstance(what, Expression) else what.source),
        what.scope,
        None if template is None else template.path,
        template is not None and template.secrets,
        {name: _json(values.given(name)) for name in reads.names},
        {step_id: _json(values.given((step_id, "output"))) for step_id in reads.outputs},
        {step_id: _json(values.given((step_id, "status"))) for step_id in reads.statuses},
    )


def values_of(request: EvaluationRequest) -> Values:
    """The values, each decoded when it is read."""
    steps: dict[str, dict[str, Raw]] = {step_id: {} for step_id in (*request.outputs, *request.statuses)}
    for step_id, output in request.outputs.items():
        steps[step_id]["output"] = Raw(output)
    for step_id, status in request.statuses.items():
        steps[step_id]["status"] = Raw(status)
    return Values({**{name: Raw(value) for name, value in request.names.items()}, "steps": steps})


def framed(message: EvaluationRequest | EvaluationReply) -> bytes:
    """The message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _json(value: Any) -> bytes:
    return bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)
