"""/runs/{run_id}/explain: why a run does not go on."""

from __future__ import annotations

import time

from falcon.asgi import Request, Response

from penstock.actors.diagnosis.explanation import explanation
from penstock.client.operating.views import ExplanationView
from penstock.http.backend import Backend
from penstock.http.diagnosis.service_facts import answering_store, within
from penstock.http.messages import params, responses
from penstock.http.messages.callers import caller_of
from penstock.http.system.storage import StorageHealth


class ExplanationResource:
    def __init__(self, backend: Backend, storage: StorageHealth) -> None:
        self._backend, self._storage = backend, storage

    async def on_get(self, req: Request, resp: Response, run_id: str) -> None:
        """Why a run does not go on: each reason with a sentence."""
        found = params.run_id(run_id)
        begin, store = time.monotonic(), await answering_store(self._backend)
        async with within(begin):
            status, waiting = await explanation(store, found, self._storage.problem, caller=caller_of(req))
        responses.ok(resp, ExplanationView(status, waiting))
