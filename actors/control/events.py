"""Sends an event. With an idempotency key, a repeat returns the first event.

The claim of a key is stored before its event. So a claim without a sequence means that an earlier request died in
between, and its event may be in the stream after the sequence in the claim.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Unavailable

TRIES_MAX = 20


class EventClaim(Struct, frozen=True, omit_defaults=True):
    """The event of a key, at `seq`. 0: not known yet, it may be among those after `after`."""

    after: int
    seq: int = 0


class _Found(Struct, frozen=True):
    """A claim, with the revision that its next write must expect. `new`: this request made it."""

    claim: EventClaim
    revision: int
    new: bool = False


async def send(store: Store, name: str, body: bytes, key: str | None = None) -> int:
    """Store an event and return its sequence. With a key, a second request with this name and key returns the first
    event, whatever its body.

    Raises Unavailable (outcome unknown: send it again, with a key).
    """
    subject = names.event_subject(name)
    if key is None:
        return await store.events.publish(subject, body)
    event_id = names.event_key(name, key)
    for _ in range(TRIES_MAX):
        found = await _claimed(store, event_id)
        if found.claim.seq:
            return found.claim.seq
        try:
            return await _store(store, subject, body, event_id, found)
        except Conflict:  # another request with this key has done it
            continue
    raise Unavailable("this Idempotency-Key is being used by too many at once")


async def _claimed(store: Store, event_id: str) -> _Found:
    """The claim of a key, made now if there is none."""
    entry = await store.event_keys.get(event_id)
    if entry is not None:
        return _Found(msgspec.json.decode(entry.value, type=EventClaim), entry.revision)
    claim = EventClaim(await store.events.last_seq())
    try:
        revision = await store.event_keys.put(event_id, msgspec.json.encode(claim), expect=0)
    except Conflict:
        return await _claimed(store, event_id)
    reached("event.claimed")
    return _Found(claim, revision, new=True)


async def _store(store: Store, subject: str, body: bytes, event_id: str, found: _Found) -> int:
    """Store the event, unless one of the claim is already stored. Raises Conflict when the claim has changed."""
    seq = 0 if found.new else await store.events.find(subject, event_id, found.claim.after)
    seq = seq or await store.events.publish(subject, body, event_id)
    reached("event.stored")
    await store.event_keys.put(event_id, msgspec.json.encode(EventClaim(found.claim.after, seq)), found.revision)
    return seq
