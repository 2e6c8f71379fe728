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
    kept = None if name is None else (await store.triggers.find(name)).kept
    if kept is None or kept.deleted or kept.trigger.route != route:
        return None
    return kept.trigger


async def take(store: Store, trigger: Trigger) -> None:
    """Give a trigger its route, if it has one. Raises Conflict when it is that of another trigger, Unavailable."""
    if trigger.route is None:
        return
    for _ in range(TAKE_TRIES_MAX):
        name, revision = await store.triggers.route(trigger.route)
        if name == trigger.name:
            return
        other = await trigger_of(store, trigger.route)
        if other is not None and other.name != trigger.name:
            raise Conflict(f"the route {trigger.route} is that of trigger {quoted(other.name)}")
        with suppress(Conflict):  # another process was faster: look again
            await store.triggers.set_route(trigger.route, trigger.name, revision)
            return
    raise Unavailable(f"the route {trigger.route} is being changed by too many at once")


async def leave(store: Store, trigger: Trigger) -> None:
    """Free the route that a trigger had, unless another one has it by now."""
    if trigger.route is None:
        return
    name, revision = await store.triggers.route(trigger.route)
    if name == trigger.name:
        with suppress(Conflict):
            await store.triggers.remove_route(trigger.route, revision)
