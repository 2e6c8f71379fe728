"""Limits are registered by definitions, and overridden by people."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.broker.records.limit_configs import Place
from penstock.broker.store import Store
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid, NeedsUpgrade, NotFound
from penstock.engine.limits.configs import LimitOverride, RegisteredLimit
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from penstock.engine.run.slots.named import NamedLimit, named_limits
from penstock.engine.times import rfc3339

USED_LISTED = 100


async def register(store: Store, definition: WorkflowDef) -> None:
    """Let the limits of a definition count from now on, and those that its workflow named before no more.

    It comes before the definition itself: whoever repeats a registration that was interrupted finishes it. Raises
    Unavailable.
    """
    after = {one.place: one for one in named_limits(definition)}
    for place in {one.place for one in await named_now(store, definition.name)} - after.keys():
        await store.limit_configs.forget(place, definition.name)
    at = rfc3339(time.time())
    for place, one in after.items():
        registered = RegisteredLimit(definition.name, definition.version, one.allowed, one.step_id, at)
        await store.limit_configs.register(place, registered)


async def named_now(store: Store, workflow: str) -> Sequence[NamedLimit]:
    """The limits that the latest definition of the workflow names; none of one that is not registered."""
    try:
        definition, _ = await store.definitions.latest(workflow)
    except (NotFound, NeedsUpgrade):
        return ()
    return named_limits(definition)


async def forget(store: Store, workflow: str, named: Sequence[NamedLimit]) -> None:
    """The workflow is deleted, and had these limits. Raises Unavailable."""
    for place in {one.place for one in named}:
        await store.limit_configs.forget(place, workflow)


async def kind_of(store: Store, scope: str, kind: LimitKind | None, *, rate: bool | None = None) -> LimitKind:
    """Which limit of the scope is meant; `rate` says whether it is a rate (None: either).

    Raises NotFound where there is none, Invalid where there are several, and `kind` does not say which one.
    """
    if kind is not None and rate is not None and (kind is LimitKind.RATE) is not rate:
        raise Invalid("kind rate goes with rate_limit, the others go with limit")
    wanted = [one for one in LimitKind if kind in (None, one) and rate in (None, one is LimitKind.RATE)]
    registered = {found for found, _ in await store.limit_configs.of_scope(scope)}
    fitting = [one for one in wanted if one in registered]
    if not fitting:  # it may be in use without being registered
        used = {one.name.kind for one in await store.limit_questions.busiest(USED_LISTED, scope=scope)}
        fitting = [one for one in wanted if one in used]
    if not fitting:
        called = "limit" if kind is None and rate is None else f"limit of kind {kind or ('rate' if rate else 'runs')}"
        raise NotFound(f"no {called} has the scope {quoted(scope)}")
    if len(fitting) > 1:
        raise Invalid(f"the scope {quoted(scope)} has limits of several kinds: say kind, one of {' '.join(fitting)}")
    return fitting[0]


async def override(store: Store, place: Place, key: str | None, allowed: Allowed, by: str | None) -> None:
    """Let this count instead of what is registered, for one key or for all (None), until it is taken back. Raises
    Conflict for too many keys, Unavailable (repeat it)."""
    await store.limit_configs.override(place, key, LimitOverride(allowed, rfc3339(time.time()), by))


async def take_back(store: Store, place: Place, key: str | None) -> None:
    """Raises NotFound where nothing is overridden, Unavailable (repeat it)."""
    if not await store.limit_configs.take_back(place, key):
        of_key = "" if key is None else f" and key {quoted(key)}"
        raise NotFound(f"the limit with scope {quoted(place[1])}{of_key} is not overridden")
