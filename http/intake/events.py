"""/events/{name}: events from programs, for event triggers and steps that wait for them."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.actors.control import events
from penstock.client.views import SentEvent
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses


class EventIntakeResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Send an event; it is stored before the response."""
        event, key = params.event_name(name), params.idempotency_key(req)
        body = await bodies.read(req, PAYLOAD_BYTES_MAX)
        bodies.parse(body)
        responses.accepted(resp, SentEvent(await events.send(self._backend.store, event, body, key)))
