"""/workflows: register definitions, read them and their versions back, delete them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from falcon.asgi import Request, Response
from msgspec import UNSET

from penstock.actors.control import workflows
from penstock.actors.index.freshness import freshened
from penstock.actors.limits import configuring as limits
from penstock.client.views import Deleted, Registered, VersionView, WorkflowSummary
from penstock.engine import validation
from penstock.engine.definition.definitions import WorkflowDef, as_registered
from penstock.engine.run.slots.named import named_limits
from penstock.engine.warnings import Facts, named_in, unserved, warnings
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses
from penstock.http.messages.callers import caller_of
from penstock.http.messages.recent import Made, RecentAnswers
from penstock.http.resources.workers import serving

DESCRIPTION_CHARS_MAX = 100  # of one in short


class WorkflowsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._recent = RecentAnswers()

    async def on_get(self, req: Request, resp: Response) -> None:
        """The latest definition of every name, or each in short."""
        sees = caller_of(req).sees
        await self._recent.give(req, resp, partial(self._made, sees, in_short=params.summary(req)))

    async def _made(self, sees: Callable[[str], bool], *, in_short: bool) -> Made:
        store = self._backend.store
        seen = [one for one in await store.definitions.all() if sees(one.name)]
        if not in_short:
            return Made(responses.listed([as_registered(one) for one in seen]))
        served = await serving(store)
        return Made(responses.encoded([summary(one, served) for one in seen]))

    async def on_post(self, req: Request, resp: Response) -> None:
        """Register a definition, or replace the one of that name."""
        document = bodies.parse(await bodies.read(req))
        definition = validation.parse(document, self._backend.settings.history_max_age)
        for name in (definition.name, *named_in(definition)):  # a child, too, is started by who may register it
            caller_of(req).check_workflow(name)
        store = self._backend.store
        facts = Facts(
            await serving(store),
            await store.definitions.missing(named_in(definition)),
            await store.limit_configs.get_many({one.place for one in named_limits(definition)}),
        )
        await limits.register(store, definition)
        await self._backend.catalog.register(definition)
        responses.created(resp, Registered(definition.name, warnings=warnings(definition, facts) or UNSET))


class WorkflowResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """The latest definition of a name, or that of a version."""
        found, version = params.workflow_name(name), params.version(req)
        definitions = self._backend.store.definitions
        latest = definitions.latest(found) if version is None else definitions.version(found, version)
        resp.data = as_registered((await latest)[0])

    async def on_delete(self, req: Request, resp: Response, name: str) -> None:
        """Delete a workflow with all its versions; runs keep their definitions."""
        found, force = params.workflow_name(name), params.force(req)
        store, index = self._backend.store, self._backend.index
        if not force:
            await freshened(store, index, params.min_seq(req))
        check = None if force else partial(workflows.check_unneeded, store, index, found)
        named = await limits.named_now(store, found)
        await self._backend.catalog.delete(found, check)
        await limits.forget(store, found, named)
        responses.ok(resp, Deleted(found))


class WorkflowVersionsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        """The versions of a workflow, newest first."""
        found = await self._backend.store.definitions.versions(params.workflow_name(name))
        responses.ok(resp, [VersionView(one.version, one.digest, one.registered_at) for one in found])


def summary(definition: WorkflowDef, served: Collection[tuple[str, str | None]]) -> WorkflowSummary:
    """The definition in short; `served` are the task types that workers serve, each with the worker group."""
    missing, text = unserved(definition, served), definition.description
    return WorkflowSummary(
        definition.name,
        definition.version,
        len(definition.steps),
        text[:DESCRIPTION_CHARS_MAX] if text else None,
        len(missing),
        missing[0] if missing else None,
    )
