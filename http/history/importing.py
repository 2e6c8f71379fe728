"""/runs/import: a run that another service has recorded, as its export gives it."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Raw, Struct

from penstock.actors.imports import importing
from penstock.broker.records.imports import ImportDocument
from penstock.client.history.views import ImportedRun
from penstock.config.limits import IMPORT_BYTES_MAX
from penstock.http.backend import Backend
from penstock.http.messages import bodies, responses
from penstock.http.messages.callers import caller_of


class ImportRun(Struct, frozen=True, forbid_unknown_fields=True):
    """As ExportView."""

    run_id: str
    definition: Raw
    events: list[Raw]


class ImportResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response) -> None:
        """Store a run that was exported, as a record."""
        request = bodies.decode(await bodies.read(req, IMPORT_BYTES_MAX), ImportRun)
        document = ImportDocument(request.run_id, request.definition, request.events)
        run = await importing.checked(document)
        caller_of(req).check_workflow(run.workflow_id)
        seq = await importing.store_run(self._backend.store, document, run)
        responses.set_seq(resp, seq)
        responses.created(resp, ImportedRun(run.run_id, run.workflow_id, run.status, len(document.events)))
