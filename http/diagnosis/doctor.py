"""/doctor: what is wrong with the service, with a remedy for each."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.http.backend import Backend
from penstock.http.diagnosis.checks.table import examined
from penstock.http.diagnosis.service_facts import service_facts
from penstock.http.messages import responses
from penstock.http.system.storage import StorageHealth


class DoctorResource:
    def __init__(self, backend: Backend, storage: StorageHealth) -> None:
        self._backend, self._storage = backend, storage

    async def on_get(self, req: Request, resp: Response) -> None:
        """What is wrong with the service, with a remedy for each."""
        responses.ok(resp, examined(await service_facts(self._backend, self._storage)))
