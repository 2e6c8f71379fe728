"""What is shown of limits: what is registered and overridden, and what their owners say."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.limits.questions import LimitSeen
from penstock.broker.records.limit_configs import Place
from penstock.broker.store import Store
from penstock.client.limits.views import (
    LimitHolderView,
    LimitKeyView,
    LimitOverrideView,
    LimitRegisteredView,
    LimitView,
    LimitWaiterView,
    RateView,
)
from penstock.config.limits import LIMIT_KEYS_SHOWN_MAX, LIMIT_NAMED_MAX, LIMIT_NAMED_SHORT
from penstock.engine.definition import durations
from penstock.engine.errors import NotFound
from penstock.engine.limits.configs import Configs, LimitConfig, allowed_now
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed
from penstock.engine.times import rfc3339
from penstock.engine.waiting.reasons import Reason


async def listed(store: Store, most: int) -> list[LimitView]:
    """Limits that are in use, the busiest first, then those that are only registered."""
    configs = await store.limit_configs.all()
    seen = await store.limit_questions.busiest(most, LIMIT_NAMED_SHORT)
    used = {(one.name.kind, one.name.scope) for one in seen}
    idle = [place for place in sorted(configs) if place not in used]
    found = [
        *(_view(one, configs) for one in seen),
        *(_view(_unused(*place, None, configs), configs) for place in idle),
    ]
    return found[:most]


async def shown(store: Store, place: Place, key: str | None) -> LimitView:
    """One limit with those who hold and wait; without a key also the keys that are in use. Raises NotFound,
    Unavailable."""
    kind, scope = place
    configs = await store.limit_configs.get_many([place])
    found = await store.limit_questions.one(LimitName(kind, scope, key), LIMIT_NAMED_MAX)
    keys: Sequence[LimitSeen] = ()
    if key is None:
        busiest = await store.limit_questions.busiest(LIMIT_KEYS_SHOWN_MAX, scope=scope)
        keys = [one for one in busiest if one.name.kind is kind and one.name.key is not None]
    if found is None and not configs and not keys:
        raise NotFound(f"no limit of kind {kind} has the scope {scope}")
    one = found or _unused(kind, scope, key, configs, keys[0].allowed if keys else None)
    return _view(one, configs, keys)


def _unused(kind: LimitKind, scope: str, key: str | None, configs: Configs, asked: Allowed | None = None) -> LimitSeen:
    """A limit that nobody has used, or not lately."""
    name = LimitName(kind, scope, key)
    allowed = allowed_now(configs, name, asked or Allowed(0))
    whole = None if kind is not LimitKind.RATE else float(allowed.burst or allowed.limit)
    return LimitSeen(name, allowed, tokens=whole)


def _view(one: LimitSeen, configs: Configs, keys: Sequence[LimitSeen] = ()) -> LimitView:
    name = one.name
    allowed = allowed_now(configs, name, one.allowed)
    config = configs.get((name.kind, name.scope)) or LimitConfig(name.kind, name.scope)
    reason = Reason.RATE_LIMIT if name.kind is LimitKind.RATE else Reason.CONCURRENCY
    return LimitView(
        name.scope,
        name.kind,
        allowed.limit,
        [LimitHolderView(held.run_id, rfc3339(held.at), held.step_id) for held in one.holders],
        one.holders_total,
        [LimitWaiterView(who.run_id, who.place, reason, who.priority, who.step_id) for who in one.waiting],
        one.waiting_total,
        name.key,
        _rate(allowed),
        one.tokens,
        None if one.next_at is None else rfc3339(one.next_at),
        [LimitKeyView(found.name.key or "", found.holders_total, found.waiting_total) for found in keys],
        _registered(config),
        _override(config, name.key),
    )


def _registered(config: LimitConfig) -> list[LimitRegisteredView]:
    return [
        LimitRegisteredView(one.workflow, one.version, one.allowed.limit, one.at, _rate(one.allowed), one.step_id)
        for one in config.registered
    ]


def _override(config: LimitConfig, key: str | None) -> LimitOverrideView | None:
    found = config.override_of(key)
    if found is None:
        return None
    of_key = key if key in config.keys else None
    return LimitOverrideView(found.allowed.limit, found.at, _rate(found.allowed), found.by, of_key)


def _rate(allowed: Allowed) -> RateView | None:
    if allowed.per_s is None:
        return None
    return RateView(allowed.limit, durations.text(allowed.per_s), allowed.burst)
