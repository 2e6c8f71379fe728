"""A run that a client starts and awaits: the requests for it, and what their answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Struct

from penstock.client import calls, workflow_requests
from penstock.client.api_request import ApiRequest
from penstock.client.calls import CallResult
from penstock.client.views import Registered
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid, PenstockError

WAIT_MS_MAX = 30_000  # of one request
AGAIN_S = 0.05  # a service that is about to stop answers at once

T = TypeVar("T")


class Definable(Protocol):
    """A workflow that can be registered: `penstock.Workflow` is one."""

    @property
    def name(self) -> str: ...

    def to_json(self) -> bytes:
        """Its definition."""
        ...


class RunFailedError(PenstockError):
    """The run that was awaited has no result: `status` is failed or cancelled, the text is its error."""

    def __init__(self, text: str, run_id: str, status: str) -> None:
        super().__init__(text)
        self.run_id = run_id
        self.status = status


class WantedRun(Struct, frozen=True):
    """One run, as its caller wants it. All requests for it have the same key, so that they are about one run."""

    workflow: str
    input: bytes
    key: str
    labels: Mapping[str, str] | None
    definition: bytes | None

    def registering(self) -> ApiRequest[Registered] | None:
        return None if self.definition is None else workflow_requests.register(self.definition)

    def starting(self) -> ApiRequest[CallResult]:
        """Starts the run, and waits for nothing."""
        return self.awaiting(0.0)

    def awaiting(self, wait_s: float) -> ApiRequest[CallResult]:
        """Starts the run, unless that was done, and waits for its answer; at most 30 s, whatever `wait_s`."""
        wait_ms = int(min(max(0.0, wait_s * 1000), WAIT_MS_MAX))
        return calls.call(self.workflow, self.input, timeout_ms=wait_ms, idempotency_key=self.key, labels=self.labels)


def wanted(
    workflow: str | Definable,
    input: object,  # noqa: A002
    *,
    register: bool,
    idempotency_key: str | None,
    labels: Mapping[str, str] | None,
) -> WantedRun:
    """Raises Invalid for an input that JSON has not, and when a name is to be registered."""
    if isinstance(workflow, str):
        if register:
            raise Invalid(f"workflow {quoted(workflow)} is only a name: register=True needs its definition")
        return WantedRun(workflow, as_json(input), idempotency_key or uuid4().hex, labels, None)
    definition = workflow.to_json() if register else None
    return WantedRun(workflow.name, as_json(input), idempotency_key or uuid4().hex, labels, definition)


def as_json(value: object) -> bytes:
    """The value as JSON: what JSON has, dataclasses, structs of msgspec, models of pydantic; bytes are JSON already.
    Raises Invalid."""
    if isinstance(value, bytes):
        return value
    try:
        return msgspec.json.encode(value, enc_hook=_of_model)
    except (TypeError, ValueError) as error:
        raise Invalid(f"the input cannot be written as JSON: {error}") from error


def _of_model(value: Any) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"objects of type {type(value).__name__} are not supported")
    found: object = dump(mode="json", by_alias=True)
    return found


def result_of(found: CallResult, kind: type[T]) -> T:
    """The answer as `kind`. Raises RunFailedError for a run that failed or was cancelled, Invalid for an answer that is
    something else."""
    if found.outcome not in ("completed", "responded"):
        raise RunFailedError(found.body.decode(errors="replace").strip(), found.run_id, found.outcome)
    try:
        if "json" in found.content_type:
            return msgspec.json.decode(found.body, type=kind)
        return msgspec.convert(found.body.decode(), kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(f"the result of run {found.run_id} is something else: {error}") from error


def late(workflow: str, timeout: float) -> TimeoutError:
    return TimeoutError(f"the run of workflow {quoted(workflow)} has not ended within {timeout:g} s; it goes on")
