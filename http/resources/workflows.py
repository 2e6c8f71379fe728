"""/workflows: register definitions and read them back."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.client.views import Registered
from penstock.engine import validation
from penstock.engine.definition.definitions import to_json
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses


class WorkflowsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The latest definition of every name."""
        definitions = await self._backend.store.definitions.all()
        responses.ok_raw(resp, [to_json(definition) for definition in definitions])

    async def on_post(self, req: Request, resp: Response) -> None:
        """Register a definition, or replace the one of that name."""
        definition = validation.parse(bodies.parse(await bodies.read(req)))
        await self._backend.catalog.register(definition)
        responses.created(resp, Registered(definition.name))


class WorkflowResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """The latest definition of a name."""
        definition, _ = await self._backend.store.definitions.latest(params.workflow_name(name))
        resp.data = to_json(definition)
