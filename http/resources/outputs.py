"""/runs/{run_id}/steps/{step_id}/output: one step's output, whatever its size."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.actors.control import run_operations
from penstock.actors.runs.outputs import output_of
from penstock.http.backend import Backend
from penstock.http.messages import params, responses


class StepOutputResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """The output of a step, byte for byte, also where the run itself shows only its size."""
        store, found, step = self._backend.store, params.run_id(run_id), params.step_id(step_id)
        responses.ok_body(resp, await output_of(store, await run_operations.get(store, found), step))
