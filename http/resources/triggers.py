"""/triggers: what starts runs without a request for each. No response contains the secret of a webhook."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import structs

from penstock.actors.control import triggers
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.client.views import Deleted, FiredRun, TrialView, TriggerView, WebhookView
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses


class TriggersResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """All triggers, by name."""
        responses.ok(resp, [_view(kept) for kept in await triggers.get_all(self._backend.store)])

    async def on_post(self, req: Request, resp: Response) -> None:
        """Create a trigger, or replace the one of that name."""
        document = bodies.parse(await bodies.read(req))
        responses.created(resp, _view(await triggers.put(self._backend.store, document)))


class TriggerResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """One trigger."""
        responses.ok(resp, _view(await triggers.get(self._backend.store, params.trigger_name(name))))

    async def on_put(self, req: Request, resp: Response, name: str) -> None:
        """Replace a trigger, or create it; the document may be one that GET returned."""
        document = _named(params.trigger_name(name), bodies.parse(await bodies.read(req)))
        responses.ok(resp, _view(await triggers.put(self._backend.store, document)))

    async def on_delete(self, req: Request, resp: Response, name: str) -> None:
        """Remove a trigger; its events that have not started a run yet never will."""
        await triggers.delete(self._backend.store, params.trigger_name(name))
        responses.ok(resp, Deleted(name))


class TriggerFireResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Start a run of a trigger manually; the body, if there is one, is its input."""
        payload = await _payload(req)
        responses.created(resp, FiredRun(await triggers.fire(self._backend.store, params.trigger_name(name), payload)))


class TriggerTrialResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """What the trigger would do with the body as its event; nothing is started."""
        payload = await _payload(req)
        trial = await triggers.try_out(self._backend.store, params.trigger_name(name), payload)
        responses.ok(resp, TrialView(**structs.asdict(trial)))


def _view(kept: StoredTrigger) -> TriggerView:
    trigger = kept.trigger
    following = triggers.next_instants(trigger, 1)
    return TriggerView(
        trigger.name,
        trigger.workflow,
        trigger.enabled,
        kept.created_at,
        trigger.input,
        trigger.cron,
        trigger.subject,
        trigger.event,
        WebhookView(trigger.secret is not None) if trigger.webhook else None,
        trigger.http,
        following[0] if following else None,
    )


def _named(name: str, document: object) -> object:
    """The document with the path's name, which it need not repeat."""
    if not isinstance(document, dict):
        return document
    if document.get("name", name) != name:
        raise Invalid(f"name must be {quoted(name)} as in the path, or absent")
    return {**document, "name": name}


async def _payload(req: Request) -> bytes | None:
    body = await bodies.read(req, PAYLOAD_BYTES_MAX)
    if body:
        bodies.parse(body)
    return body or None
