"""/triggers: what starts runs without a request for each. No response contains the secret of a webhook."""

from __future__ import annotations

from contextlib import suppress

from falcon.asgi import Request, Response
from msgspec import structs

from penstock.actors.control import triggers
from penstock.broker.store import Store
from penstock.broker.triggers.batches import OpenBatches
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.client.views import Deleted, FiredRun, OpenBatchesView, TrialView, TriggerView, WebhookView
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.access.scopes import Caller
from penstock.engine.definition.identifiers import problem_with, quoted
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.times import rfc3339
from penstock.engine.trigger.batching import due_at
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses
from penstock.http.messages.callers import caller_of


class TriggersResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """All triggers, by name."""
        found = await triggers.get_all(self._backend.store)
        responses.ok(resp, [_view(kept) for kept in found if caller_of(req).sees(kept.trigger.workflow)])

    async def on_post(self, req: Request, resp: Response) -> None:
        """Create a trigger, or replace the one of that name."""
        document = bodies.parse(await bodies.read(req))
        await _check_replaced(self._backend.store, caller_of(req), document)
        responses.created(resp, _view(await triggers.put(self._backend.store, document)))


class TriggerResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """One trigger, with the events that it has taken up and not started a run with yet."""
        kept = await triggers.get(self._backend.store, params.trigger_name(name))
        found = await triggers.open_batches(self._backend.store, kept)
        responses.ok(resp, structs.replace(_view(kept), open_batches=None if found is None else _open(kept, found)))

    async def on_put(self, req: Request, resp: Response, name: str) -> None:
        """Replace a trigger, or create it; the document may be one that GET returned."""
        document = _named(params.trigger_name(name), bodies.parse(await bodies.read(req)))
        await _check_replaced(self._backend.store, caller_of(req), document)
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
        trigger.labels,
        trigger.debounce,
        trigger.batch,
    )


def _open(kept: StoredTrigger, found: OpenBatches) -> OpenBatchesView:
    batching, oldest = kept.trigger.batching, found.oldest
    assert batching is not None, "only such a trigger has batches"
    due = due_at(batching, oldest.since, oldest.stored_at)
    return OpenBatchesView(found.batches, found.events, rfc3339(oldest.since), rfc3339(due))


async def _check_replaced(store: Store, caller: Caller, document: object) -> None:
    """Raises OutOfScope for a trigger that starts, or that would replace one that starts, a workflow with which the
    caller may not deal."""
    if caller.workflows is None or not isinstance(document, dict):
        return
    if isinstance(workflow := document.get("workflow"), str):
        caller.check_workflow(workflow)
    name = document.get("name")
    if isinstance(name, str) and problem_with("trigger", name) is None:
        with suppress(NotFound):
            caller.check_workflow((await triggers.get(store, name)).trigger.workflow)


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
