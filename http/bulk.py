"""/runs/bulk, and the paths beside it that are no run ids."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Raw, Struct

from penstock.actors import control
from penstock.config.limits import BULK_RUNS_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.errors import Invalid
from penstock.engine.report import Report
from penstock.engine.schema import Schema
from penstock.http import answers, bodies
from penstock.http.backend import Backend


class StartRuns(Struct, frozen=True, forbid_unknown_fields=True):
    workflow_id: str
    inputs: list[Raw]


class Started(Struct, frozen=True):
    """`run_ids` stand in the order of the inputs."""

    run_ids: list[str]
    total: int


class BulkRuns:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Start up to 1,000 runs of one workflow, all or none."""
        body = await bodies.read(req)
        request = bodies.decode(body, StartRuns)
        _check_sizes(body, request.inputs)
        known = await self._backend.catalog.wanted(request.workflow_id)
        _check_inputs(request.inputs, known.schema)
        run_ids = await control.start_all(self._backend.store, known.definition, known.digest, request.inputs)
        answers.created(resp, Started(run_ids, len(run_ids)))


class NotYet:
    """Holds the place of an operation that this version does not have."""

    def __init__(self, operation: str) -> None:
        self._operation = operation

    async def on_post(self, req: Request, resp: Response) -> None:
        raise Invalid(f"{self._operation} is not supported by this version")


def _check_sizes(body: bytes, inputs: list[Raw]) -> None:
    if not inputs:
        raise Invalid("inputs is empty, at least one input is needed")
    if len(inputs) > BULK_RUNS_MAX:
        raise Invalid(f"inputs has {len(inputs)} entries, {BULK_RUNS_MAX} is the most")
    if len(body) > PAYLOAD_BYTES_MAX:
        for number, value in enumerate(inputs):
            bodies.check_payload(f"input[{number}]", value)


def _check_inputs(inputs: list[Raw], schema: Schema | None) -> None:
    if schema is None:
        return
    report = Report()
    for number, value in enumerate(inputs):
        report.add(*schema.check(bytes(value), f"input[{number}]"))
    if problems := report.problems():
        raise Invalid(*problems)
