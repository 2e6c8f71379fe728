"""/v1/http/<path>: requests that start a run of the trigger with that route, and are answered with what it gives."""

from __future__ import annotations

from typing import Any

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response
from msgspec import Raw

from penstock.actors.control.run_operations import now
from penstock.actors.triggers import routes
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import Denied
from penstock.engine.run.events import TriggerRef
from penstock.engine.trigger.routes import TOKEN, HttpSource
from penstock.engine.trigger.trigger import Trigger
from penstock.engine.trigger.trigger_events import request_input
from penstock.http.backend import Backend
from penstock.http.intake.calls import answer
from penstock.http.messages import bodies, params
from penstock.http.middleware.auth import bears

PREFIX = "/v1/http/"


class HttpTriggerSink:
    """Takes every request whose path begins with PREFIX: which of them exist changes with the triggers."""

    def __init__(self, backend: Backend, api_token: str | None) -> None:
        self._backend, self._api_token = backend, api_token

    async def __call__(self, req: Request, resp: Response | None, **kwargs: Any) -> None:
        assert resp is not None, "no WebSocket comes here"
        trigger, source = await self._wanted(req)
        if source.auth == TOKEN:
            self._authenticate(req)
        value, key = await _input(req, trigger, source), params.idempotency_key(req)
        bodies.check_payload("input", value)
        known = await self._backend.catalog.latest(trigger.workflow)
        ref = TriggerRef(name=trigger.name, kind=trigger.kind, at=now())
        await answer(self._backend, req, resp, known, value, source.timeout_s, _own(trigger, key), ref)
        self._backend.store.meters.counter("penstock_trigger_fires_total").add(trigger.kind)

    async def _wanted(self, req: Request) -> tuple[Trigger, HttpSource]:
        trigger = await routes.trigger_of(self._backend.store, f"{req.method} {req.path.removeprefix(PREFIX)}")
        if trigger is None or trigger.http is None or not trigger.enabled:
            raise HTTPRouteNotFound()
        return trigger, trigger.http

    def _authenticate(self, req: Request) -> None:
        if self._api_token is None or not bears(req, self._api_token.encode()):
            raise Denied("a valid bearer token is needed")


async def _input(req: Request, trigger: Trigger, source: HttpSource) -> Raw:
    body = await bodies.read(req, PAYLOAD_BYTES_MAX)
    if isinstance(trigger.input, Raw):
        return trigger.input
    return request_input(req.method, source.path, req.params, req.headers, body)


def _own(trigger: Trigger, key: str | None) -> str | None:
    """The key among those of this trigger: who may send it requests learns nothing of other runs. No key of a request
    begins with a line break."""
    return None if key is None else f"\n{trigger.name}\n{key}"
