"""Routes of http triggers: each belongs to at most one trigger.

A record for each route names its trigger. It counts only while that trigger exists and has the route, so a process may
die between writing the two.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.broker.store import Store
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.trigger.trigger import Trigger

TAKE_TRIES_MAX = 20


async def trigger_of(store: Store, route: str) -> Trigger | None:
    """The trigger that has the route (`POST orders/new`), also when it is disabled."""
    name, _ = await store.triggers.route(route)
    return None if name is None else await _named(store, name, route)


async def take(store: Store, trigger: Trigger) -> None:
    """Give a trigger its route, if it has one. Raises Conflict when it is that of another trigger, Unavailable.

    The record is written in any case: so it stays if another process is about to remove it.
    """
    if trigger.route is None:
        return
    for _ in range(TAKE_TRIES_MAX):
        name, revision = await store.triggers.route(trigger.route)
        if name is not None and name != trigger.name and await _named(store, name, trigger.route) is not None:
            raise Conflict(f"the route {trigger.route} is that of trigger {quoted(name)}")
        with suppress(Conflict):  # another process was faster: look again
            await store.triggers.set_route(trigger.route, trigger.name, revision)
            return
    raise Unavailable(f"the route {trigger.route} is being changed by too many at once")


async def leave(store: Store, trigger: Trigger) -> None:
    """Free the route that a trigger had or was to have, unless it has it by now, or another one. Raises Unavailable."""
    if trigger.route is None:
        return
    name, revision = await store.triggers.route(trigger.route)
    if name == trigger.name and await _named(store, name, trigger.route) is None:
        with suppress(Conflict):
            await store.triggers.remove_route(trigger.route, revision)


async def _named(store: Store, name: str, route: str) -> Trigger | None:
    """The trigger of this name, if it exists and has the route."""
    kept = (await store.triggers.find(name)).kept
    if kept is None or kept.deleted or kept.trigger.route != route:
        return None
    return kept.trigger
