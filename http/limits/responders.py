"""/limits: the limits and who waits for them; what they allow can be overridden, and that can be taken back."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import structs

from penstock.actors.limits import configuring as limits
from penstock.engine.errors import NotFound
from penstock.http.backend import Backend
from penstock.http.limits import forms, seen
from penstock.http.messages import bodies, responses
from penstock.http.messages.callers import caller_of


class LimitsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Limits that are in use, the busiest first, then those that are only registered."""
        responses.ok(resp, await seen.listed(self._backend.store, forms.how_many(req)))


class LimitResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, scope: str) -> None:
        """A limit: how much it allows, who holds its slots, who waits."""
        store, wanted = self._backend.store, forms.which(req, scope)
        kind = await limits.kind_of(store, scope, wanted.kind)
        responses.ok(resp, await seen.shown(store, (kind, scope), wanted.key))

    async def on_put(self, req: Request, resp: Response, scope: str) -> None:
        """Override how much a limit allows, for one key or for all."""
        store, wanted = self._backend.store, forms.which(req, scope)
        allowed = forms.allowed_in(await bodies.read(req))
        kind = await limits.kind_of(store, scope, wanted.kind, rate=allowed.per_s is not None)
        await limits.override(store, (kind, scope), wanted.key, allowed, caller_of(req).name)
        responses.ok(resp, await seen.shown(store, (kind, scope), wanted.key))

    async def on_delete(self, req: Request, resp: Response, scope: str) -> None:
        """Take an override back: what is registered counts again."""
        store, wanted = self._backend.store, forms.which(req, scope)
        kind = await limits.kind_of(store, scope, wanted.kind)
        before = await seen.shown(store, (kind, scope), wanted.key)
        await limits.take_back(store, (kind, scope), wanted.key)
        try:
            responses.ok(resp, await seen.shown(store, (kind, scope), wanted.key))
        except NotFound:  # the override was all that was known of it
            responses.ok(resp, structs.replace(before, override=None))
