"""/runs/{run_id}/scheduled: a run that waits for its time, until it starts or is cancelled."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.actors.control import run_operations
from penstock.actors.imports.reading import read
from penstock.actors.runs.outputs import input_of
from penstock.client.views import ScheduledRun, Unscheduled
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.state import RunStatus
from penstock.http.backend import Backend
from penstock.http.messages import params, responses


class ScheduledRunResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """The scheduled run; not found once it has started or was cancelled."""
        store = self._backend.store
        run = await read(store, params.run_id(run_id))
        if run.status is not RunStatus.SCHEDULED or run.run_at is None:
            raise run_operations.not_scheduled(run)
        responses.ok(
            resp,
            ScheduledRun(
                run.run_id, run.workflow_id, run.status, run.run_at, run.created_at, await input_of(store, run)
            ),
        )

    async def on_delete(self, req: Request, resp: Response, run_id: str) -> None:
        """Cancel the scheduled run before it starts."""
        try:
            await run_operations.unschedule(self._backend.store, params.run_id(run_id))
        except NotFound as error:  # SPEC, Scheduled runs: it is the request that is wrong
            raise Invalid(str(error)) from error
        responses.ok(resp, Unscheduled())
