"""Slots that are granted to runs which were removed or archived: nobody else would give them back."""

from __future__ import annotations

from penstock.broker.store import Store
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Released
from penstock.engine.run.events import LimitGranted, Malformed, decode

GONE = "the run was removed or archived"
GRANT = LimitGranted.__struct_config__.tag


async def give_back(store: Store, data: bytes) -> None:
    """Give back the slot that this stored event grants. Returns when that is stored; other events need nothing. Raises
    Unavailable."""
    if str(GRANT).encode() not in data:
        return
    try:
        event = decode(data)
    except Malformed:
        return
    if isinstance(event, LimitGranted) and event.payload.kind != LimitKind.RATE and not event.payload.inherited:
        await (await store.limit_log.release(event.payload.limit_id, Released(holder=event.payload.holder, why=GONE)))
