"""Sends an event. With an idempotency key, a repeat returns the first event.

The claim of a key is stored before its event. So a claim without a sequence means that an earlier request died in
between, and its event may be in the stream after the sequence in the claim.

The event itself cannot be stored on the condition that no other one has its key: events of one name share a subject.
The broker refuses a repeat for two minutes only. So a request that was suspended after its claim looks for the event of
another one before it stores its own. What is suspended right then, with its message already written, may store a second
event; it has the same id, so that triggers start nothing for it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.actors.runs.shared.lease import now
from penstock.broker import names, record_keys
from penstock.broker.store import Store
from penstock.config.limits import DEDUP_WINDOW_BROKER_S
from penstock.config.process.author import author
from penstock.config.process.crash_points import reached
from penstock.config.process.traces import caller_trace
from penstock.engine.errors import Conflict, Unavailable

TRIES_MAX = 20
FRESH_S = DEDUP_WINDOW_BROKER_S / 2  # after that, the broker may soon have forgotten the event of another request


class EventClaim(Struct, frozen=True, omit_defaults=True):
    """The event of a key, at `seq`. 0: not known yet, it may be among those after `after`."""

    after: int
    seq: int = 0


class _Found(Struct, frozen=True):
    """A claim, with the revision that its next write must expect. `made_at`: when this request began to make it
    (`now`); 0: another one made it."""

    claim: EventClaim
    revision: int
    made_at: float = 0.0

    @property
    def fresh(self) -> bool:
        """Whether no other request can have stored its event so long ago that the broker would take it again."""
        return self.made_at > 0 and now() - self.made_at < FRESH_S


async def send(store: Store, name: str, body: bytes, key: str | None = None) -> int:
    """Store an event and return its sequence. With a key, a second request with this name and key returns the first
    event, whatever its body.

    Raises Unavailable (outcome unknown: send it again, with a key).
    """
    subject = names.event_subject(name)
    if key is None:
        return await store.events.publish(subject, body, by=author(), trace=caller_trace())
    event_id = record_keys.event_key(name, key)
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
    claim, made_at = EventClaim(await store.events.last_seq()), now()
    try:
        revision = await store.event_keys.put(event_id, msgspec.json.encode(claim), expect=0)
    except Conflict:
        return await _claimed(store, event_id)
    reached("event.claimed")
    return _Found(claim, revision, made_at)


async def _store(store: Store, subject: str, body: bytes, event_id: str, found: _Found) -> int:
    """Store the event, unless one of the claim is already stored. Raises Conflict when the claim has changed."""
    seq = 0 if found.fresh else await store.events.find(subject, event_id, found.claim.after)
    seq = seq or await store.events.publish(subject, body, event_id, by=author(), trace=caller_trace())
    reached("event.stored")
    await store.event_keys.put(event_id, msgspec.json.encode(EventClaim(found.claim.after, seq)), found.revision)
    return seq
