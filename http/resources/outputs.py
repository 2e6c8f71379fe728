"""/runs/{run_id}/steps/{step_id}/output, …/input and …/checkpoint: what one step has given, was given, and has kept."""

from __future__ import annotations

import msgspec
from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, UnsetType

from penstock.actors.imports.reading import read, read_loaded
from penstock.actors.runs.commands.step_inputs import StepInputs
from penstock.actors.runs.outputs import output_of, output_size
from penstock.broker import record_keys
from penstock.client.views import CheckpointView
from penstock.engine.errors import NotFound
from penstock.engine.times import rfc3339
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.large_bodies import kept_unless_failed, ok_large


class StepOutputResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """The output of a step, byte for byte, also where the run itself shows only its size."""
        store, found, step = self._backend.store, params.run_id(run_id), params.step_id(step_id)
        run = await read(store, found)
        share = await self._backend.large.take(output_size(run, step))
        with kept_unless_failed(share):
            ok_large(req, resp, await output_of(store, run, step), share)


class StepInputResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """The input of a step's last execution."""
        store, found, step = self._backend.store, params.run_id(run_id), params.step_id(step_id)
        loaded = await read_loaded(store, found)
        if loaded.run is None or loaded.workflow is None:
            raise NotFound(
                f"run {found} does not exist" if loaded.run is None else f"the definition of run {found} is gone"
            )
        inputs = StepInputs(store, self._backend.large.take_all)
        ok_large(req, resp, *await inputs.of(loaded.run, loaded.workflow, step))


class StepCheckpointResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """What the worker of a step has kept last for the next attempt."""
        found, step = params.run_id(run_id), params.step_id(step_id)
        most = params.payload_max(req)
        entry = await self._backend.store.checkpoints.get(record_keys.step_key(found, step))
        if entry is None:
            raise NotFound(f"step {step} of run {found} has no checkpoint; those of a run that has ended are removed")
        size = len(entry.value)
        value = UNSET if most is not None and size > most else _json(entry.value)
        responses.ok(resp, CheckpointView(rfc3339(entry.at), size, value))


def _json(body: bytes) -> Raw | UnsetType:
    """The body as it is; UNSET for what is no JSON, as workers may write it."""
    try:
        msgspec.json.decode(body, type=Raw)
    except msgspec.MsgspecError:
        return UNSET
    return Raw(body)
