"""/v1/http/<path>: requests that start a run of the trigger with that route, and are answered with what it gives."""

from __future__ import annotations

from typing import Any

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response
from msgspec import Raw

from penstock.actors.control.run_operations import now
from penstock.actors.triggers import routes
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.process.author import set_author
from penstock.engine.access.scopes import Caller, KeyScope
from penstock.engine.run.event_payloads import NULL, TriggerRef
from penstock.engine.trigger.labels import run_labels
from penstock.engine.trigger.routes import TOKEN, HttpSource
from penstock.engine.trigger.trigger import Trigger
from penstock.engine.trigger.trigger_events import request_input
from penstock.http.backend import Backend
from penstock.http.intake.calls import answer
from penstock.http.messages import bodies, params
from penstock.http.middleware.credentials import Credentials

PREFIX = "/v1/http/"


class HttpTriggerSink:
    """Takes every request whose path begins with PREFIX: which of them exist changes with the triggers."""

    def __init__(self, backend: Backend, credentials: Credentials) -> None:
        self._backend, self._credentials = backend, credentials

    async def __call__(self, req: Request, resp: Response | None, **kwargs: Any) -> None:
        assert resp is not None, "no WebSocket comes here"
        trigger, source = await self._wanted(req)
        if source.auth == TOKEN:
            req.context.caller = self._authenticated(req, trigger)
        event, key = await _event(req, trigger, source), params.idempotency_key(req)
        value = trigger.input if isinstance(trigger.input, Raw) else event
        bodies.check_payload("input", value)
        labels = run_labels(trigger.labels, event)
        known = await self._backend.catalog.latest(trigger.workflow)
        ref = TriggerRef(name=trigger.name, kind=trigger.kind, at=now())
        await answer(self._backend, req, resp, known, value, source.timeout_s, _own(trigger, key), ref, labels)
        self._backend.store.meters.counter("penstock_trigger_fires_total").add(trigger.kind)

    async def _wanted(self, req: Request) -> tuple[Trigger, HttpSource]:
        trigger = await routes.trigger_of(self._backend.store, f"{req.method} {req.path.removeprefix(PREFIX)}")
        if trigger is None or trigger.http is None or not trigger.enabled:
            raise HTTPRouteNotFound()
        return trigger, trigger.http

    def _authenticated(self, req: Request, trigger: Trigger) -> Caller:
        caller = self._credentials.of_trigger(req)
        caller.check_scope(KeyScope.OPERATE, f"{req.method} {req.path}")
        caller.check_workflow(trigger.workflow)
        set_author(caller.name)
        return caller


async def _event(req: Request, trigger: Trigger, source: HttpSource) -> Raw:
    """The request, as far as anything of the run is made of it."""
    body = await bodies.read(req, PAYLOAD_BYTES_MAX)
    if isinstance(trigger.input, Raw) and not trigger.labels:
        return NULL
    return request_input(req.method, source.path, req.params, req.headers, body)


def _own(trigger: Trigger, key: str | None) -> str | None:
    """The key among those of this trigger: who may send it requests learns nothing of other runs. No key of a request
    begins with a line break."""
    return None if key is None else f"\n{trigger.name}\n{key}"
