"""Operations on triggers: create or replace, read, delete and fire one, and test what an event would start."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.actors.control.run_operations import now
from penstock.actors.triggers import routes
from penstock.actors.triggers.reconcile import TRIES_MAX, cron_of, new_generation, reconcile
from penstock.actors.triggers.starting import Starter
from penstock.broker import names
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.broker.streams.events import text_of
from penstock.broker.triggers.batches import OpenBatches
from penstock.broker.triggers.triggers import Retired, StoredTrigger, TriggerEntry
from penstock.config.limits import TRIGGERS_MAX
from penstock.config.process.crash_points import reached
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.errors import Conflict, Invalid, NotFound, PenstockError, Unavailable
from penstock.engine.run.event_payloads import NULL
from penstock.engine.times import rfc3339
from penstock.engine.trigger.batching import in_words, key_text, run_value
from penstock.engine.trigger.labels import run_labels
from penstock.engine.trigger.trigger import Trigger, parse
from penstock.engine.trigger.trigger_events import as_json, matches, run_input

SHOWN_INSTANTS = 5


class Trial(Struct, frozen=True, omit_defaults=True):
    """What a trigger event would start. `problems` are the reasons why nothing would start; `next` are a cron trigger's
    instants, `when` says when the run of a trigger with batches would start, `key` which events it has."""

    would_start: bool
    workflow: str
    version: str | None = None
    input: Raw | None = None
    problems: list[str] = []
    next: list[str] = []
    labels: dict[str, str] | None = None
    when: str | None = None
    key: str | None = None


async def put(store: Store, document: object) -> StoredTrigger:
    """Create the trigger of an untyped document, or replace the one of its name; its events are kept from now on.

    Events that the former trigger of this name has not handled are handled by this one if both listen to the same
    source, and dropped otherwise. Raises Invalid with all problems, Conflict when there are too many or when the route
    is that of another trigger, Unavailable (repeat it).
    """
    for _ in range(TRIES_MAX):
        found = await store.triggers.find(_name(document))
        trigger = parse(document, found.kept.trigger.secret if found.kept and not found.kept.deleted else None)
        await _check(store, trigger, found)
        kept = await _changed(store, trigger, found)
        await routes.take(store, trigger)
        try:
            written = await store.triggers.write(found, kept)
        except Conflict:
            await routes.leave(store, trigger)
            continue
        reached("trigger.written")
        await _confirm(store, written, found)
        if found.kept is not None and found.kept.trigger.route != trigger.route:
            await routes.leave(store, found.kept.trigger)
        await reconcile(store, trigger.name)
        return kept
    raise Unavailable("the trigger is being changed by too many at once")


async def _confirm(store: Store, written: TriggerEntry, found: TriggerEntry) -> None:
    """Check once more what may have changed before the trigger was there to be seen: that its route is not that of
    another one, and that its workflow is registered. Otherwise take the trigger back, and raise Conflict or Invalid."""
    assert written.kept is not None
    trigger = written.kept.trigger
    try:
        await routes.take(store, trigger)
        await store.definitions.confirm(trigger.workflow)
    except Conflict:
        await _take_back(store, written, found)
        raise
    except NotFound as error:
        await _take_back(store, written, found)
        raise Invalid(str(error)) from error


async def _take_back(store: Store, written: TriggerEntry, found: TriggerEntry) -> None:
    """Have the trigger that was there before, or none, unless somebody has changed this one since. Raises
    Unavailable."""
    kept, former = written.kept, found.kept
    assert kept is not None
    with suppress(Conflict):
        if former is None or former.deleted:
            await store.triggers.write(written, _gone(kept))
        else:
            await store.triggers.write(written, await _changed(store, former.trigger, written))
            await routes.take(store, former.trigger)
    await routes.leave(store, kept.trigger)
    await reconcile(store, kept.trigger.name)


async def get(store: Store, name: str) -> StoredTrigger:
    """The trigger of this name. Raises NotFound."""
    kept = (await store.triggers.find(name)).kept
    if kept is None or kept.deleted:
        raise NotFound(f'trigger "{name}" does not exist')
    return kept


async def get_all(store: Store) -> list[StoredTrigger]:
    """All triggers, by name."""
    return [kept for kept in await store.triggers.all() if not kept.deleted]


async def open_batches(store: Store, kept: StoredTrigger) -> OpenBatches | None:
    """What a trigger with debounce or batch has taken up and not started a run with yet; None: nothing. Raises
    Unavailable."""
    return None if kept.trigger.batching is None or not kept.active else await store.batches.open(kept.generation)


async def delete(store: Store, name: str) -> None:
    """Remove the trigger with its consumers and schedules. Raises NotFound, Unavailable."""
    for _ in range(TRIES_MAX):
        found = await store.triggers.find(name)
        if found.kept is None or found.kept.deleted:
            raise NotFound(f'trigger "{name}" does not exist')
        try:
            await store.triggers.write(found, _gone(found.kept))
        except Conflict:
            continue
        reached("trigger.deleted")
        await routes.leave(store, found.kept.trigger)
        await reconcile(store, name)
        return
    raise Unavailable(f'trigger "{name}" is being changed by too many at once')


async def fire(store: Store, name: str, payload: bytes | None) -> str:
    """Start a run as if a trigger event had just come, also when the trigger is disabled. Returns the run id.

    The input is the payload; without one, the trigger's own or null. Raises NotFound, Invalid, TooLarge, Unavailable.
    """
    trigger = (await get(store, name)).trigger
    run_id = new_run_id()
    event = NULL if payload is None else Raw(payload)
    await Starter(store).start(trigger, run_id, _fired_input(trigger, payload), now(), event=event)
    return run_id


async def try_out(store: Store, name: str, payload: bytes | None) -> Trial:
    """What this payload would start now. Nothing is started. Raises NotFound, Unavailable."""
    trigger = (await get(store, name)).trigger
    problems = [] if trigger.enabled else ["the trigger is disabled"]
    if trigger.event is not None and payload is not None and not matches(trigger.event, payload):
        problems.append("the filter does not let it through")
    value, version, labels, key, batching = NULL, None, None, None, trigger.batching
    try:
        event = NULL if payload is None or trigger.cron else as_json(payload)
        value = _tried_input(trigger, payload)
        if batching is not None:
            key = key_text(batching, event) if batching.key else None
            event = run_value(batching, [bytes(event)])
            value = trigger.input if isinstance(trigger.input, Raw) else event
        labels = run_labels(trigger.labels, event)
        version = (await Starter(store).checked(trigger, value))[0].version
    except Unavailable:
        raise
    except PenstockError as error:
        problems += str(error).splitlines()
    instants, when = next_instants(trigger, SHOWN_INSTANTS), None if batching is None else in_words(batching)
    return Trial(not problems, trigger.workflow, version, value, problems, instants, labels, when, key)


def next_instants(trigger: Trigger, count: int) -> list[str]:
    """The next instants of an enabled cron trigger; nothing for any other."""
    if trigger.cron is None or not trigger.enabled:
        return []
    cron, found = cron_of(trigger), [datetime.now(UTC)]
    while len(found) <= count and (following := cron.next(found[-1])) is not None:
        found.append(following)
    return [text_of(instant) for instant in found[1:]]


def _name(document: object) -> str:
    """The name in a document, before anything else is known of it. Raises Invalid with all problems of one that has no
    right name."""
    match document:
        case {"name": str(name)} if problem_with("name", name) is None:
            return name
        case _:
            return parse(document).name


async def _check(store: Store, trigger: Trigger, found: TriggerEntry) -> None:
    starter = Starter(store)
    if isinstance(trigger.input, Raw):
        await starter.checked(trigger, trigger.input)
    else:
        await starter.definition(trigger)
    if trigger.enabled:
        await store.sources.check(trigger, [one.generation for one in _retired(found.kept)] if found.kept else [])
    if found.kept is None and len(await store.triggers.all()) >= TRIGGERS_MAX:
        raise Conflict(f"there are {TRIGGERS_MAX} triggers already, which is the most")


async def _changed(store: Store, trigger: Trigger, found: TriggerEntry) -> StoredTrigger:
    """The record after the change: a trigger that goes on listening to the same keeps its generation."""
    old = found.kept
    if old is not None and old.generation and trigger.enabled and old.trigger.same_source(trigger):
        return replace(old, trigger=trigger)
    kept = StoredTrigger(
        trigger=trigger,
        created_at=old.created_at if old is not None and not old.deleted else now(),
        since=rfc3339(
            await store.history.now()
        ),  # the broker fires its instants: none is left out, and none caught up, by another clock
        retired=_retired(old) if old is not None else (),
    )
    if not trigger.enabled or trigger.http is not None:  # requests start runs themselves
        return kept
    if trigger.subject is not None:
        return replace(kept, generation=new_generation())
    return replace(kept, generation=new_generation(), stream=names.EVENTS, after_seq=await store.events.last_seq())


def _gone(kept: StoredTrigger) -> StoredTrigger:
    """The record of a trigger that is deleted, until nothing of it is left at the broker."""
    return replace(kept, deleted=True, generation="", stream="", retired=_retired(kept))


def _retired(kept: StoredTrigger) -> tuple[Retired, ...]:
    """All generations to close when the current one ends."""
    current = (kept.current,) if kept.generation else ()
    return (*kept.retired, *current)


def _fired_input(trigger: Trigger, payload: bytes | None) -> Raw:
    if payload is not None:
        return Raw(payload)
    return trigger.input if isinstance(trigger.input, Raw) else NULL


def _tried_input(trigger: Trigger, payload: bytes | None) -> Raw:
    return run_input(trigger, b"null" if payload is None or trigger.cron else payload)
