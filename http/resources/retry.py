"""/runs/{run_id}/retry: one failed run is resumed at the step that failed, or started anew. Many at once: bulk.py."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.actors.control import run_operations
from penstock.actors.control.bulk import MatchingRuns
from penstock.actors.control.rerunning import Definition
from penstock.actors.control.retry import plan, rerun, with_latest
from penstock.actors.index.freshness import freshened
from penstock.client.recovery.views import RetriedRun
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import Conflict
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, params, responses
from penstock.http.resources.bulk import MODE

RETRY_RUN: fields.Fields = {"mode": MODE}


class RetryRun(Struct, frozen=True, forbid_unknown_fields=True):
    """The optional body; `mode` is replay or rerun. With `once`, a run that was rerun already is not rerun again."""

    mode: str = "replay"
    once: bool = False


class RunRetryResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str) -> None:
        """Resume a failed run, or start a new one with its input."""
        found = params.run_id(run_id)
        body = await bodies.read(req, PAYLOAD_BYTES_MAX)
        request = bodies.decode(body, RetryRun) if body else RetryRun()
        fields.check_fields(request, RETRY_RUN)
        if request.mode == "rerun":
            responses.ok(resp, RetriedRun(found, await self._rerun(found, request.once)))
        else:
            await run_operations.replay(self._backend.store, found)
            responses.ok(resp, RetriedRun(found))

    async def _rerun(self, run_id: str, once: bool) -> str:
        """The new run's id. Raises NotFound, Conflict with the reason why it is not started, Unavailable."""
        store, index = self._backend.store, self._backend.index
        run = await run_operations.get(store, run_id)
        known = await self._backend.catalog.wanted(run.workflow_id)
        if once:
            await freshened(store, index)
        wanted = plan(index, MatchingRuns([run_id]), once=once)
        again = with_latest(store, Definition(known.definition, known.digest, known.schema))
        done = await rerun(store, run.workflow_id, wanted, again, dry_run=False)
        if done.skipped:
            raise Conflict(f"run {run_id} is not started again: {done.skipped[0].reason}")
        new = done.retried[0].new_run_id
        assert new is not None
        return new
