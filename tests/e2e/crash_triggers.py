"""What comes to triggers while a process dies: scenarios as in crash_scenarios.py, with a trigger of the workflow's
name."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.broker import names
from penstock.broker.triggers.triggers import StoredTrigger
from tests.e2e.crash_scenarios import UNANSWERED_S, all_ended, registered, step
from tests.support.crashing import SECRET, World
from tests.support.trigger_events import gone, nothing_left, started
from tests.support.waiting import until

TICK_S = 3.0
LETTERS = 1000  # all that a module leaves, by far


async def webhook(world: World, name: str) -> None:
    """A webhook that got no answer is sent again, under the same id."""
    kept = await triggered(world, name, {"webhook": {}})
    body = b'{"n": 1}'
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    headers = {"X-Signature-256": signature, "X-GitHub-Delivery": name}
    await world.ask("POST", f"/v1/webhooks/{name}", content=body, headers=headers)
    await occurred(world, name, kept, 1)


async def event(world: World, name: str) -> None:
    kept = await triggered(world, name, {"event": {"subject": f"event.{name}"}})
    await world.store.events.publish(f"event.{name}", b"1")
    await occurred(world, name, kept, 1)


async def sent_event(world: World, name: str) -> object:
    """An event that got no answer is sent again, with the same key."""
    kept = await triggered(world, name, {"event": {"subject": f"event.{name}"}})
    await world.ask("POST", f"/events/{name}", json={"n": 1}, headers={"Idempotency-Key": name})
    await occurred(world, name, kept, 1)
    return len(await world.store.reader.subject(names.EVENTS, f"event.{name}"))


async def subject(world: World, name: str) -> object:
    kept = await triggered(world, name, {"subject": {"subject": f"outside.{name}"}})
    await world.store.broker.publish(f"outside.{name}", b"1")
    await occurred(world, name, kept, 1)
    streams = (await world.store.broker.api("STREAM.NAMES", {"subject": f"outside.{name}"}))["streams"]
    return len(streams)


async def refused_event(world: World, name: str) -> None:
    """What comes to the trigger is no input for its workflow."""
    kept = await triggered(world, name, {"event": {"subject": f"event.{name}"}}, input_schema={"type": "object"})
    await world.store.events.publish(f"event.{name}", b"1")

    async def refused() -> bool:
        page = await world.store.dead_letters.page(limit=LETTERS)
        return any(dead_letter.trigger == name for dead_letter in page.dead_letters)

    await until(refused)
    await nothing_left(world.store, kept)


async def deleted_trigger(world: World, name: str) -> None:
    kept = await triggered(world, name, {"event": {"subject": f"event.{name}"}})
    await world.ask("DELETE", f"/triggers/{name}", 404)
    await world.store.events.publish(f"event.{name}", b"1")
    await until(lambda: gone(world.store, kept.generation))


async def cron(world: World, name: str) -> object:
    """One instant comes; the next one is a year away, and the broker has it."""
    await registered(world, name, step("crash.echo"))
    at = datetime.now(UTC) + timedelta(seconds=TICK_S)
    expression = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *"
    kept = await triggered(world, name, {"cron": {"expression": expression, "timezone": "UTC"}})
    await occurred(world, name, kept, 1)
    following = await world.store.events.scheduled(name, kept.generation)
    assert following is not None
    return following.instant.year - at.year


async def batched(world: World, name: str) -> object:
    """Three events fill a batch, long before its time is over."""
    return await several(world, name, 3, {"batch": {"size": 3, "period": "1h"}})


async def debounced(world: World, name: str) -> object:
    """One event is the last one when its time is over."""
    return await several(world, name, 1, {"debounce": {"period": "1s", "max_wait": "1m"}})


async def several(world: World, name: str, events: int, how: dict[str, Any]) -> object:
    """What the runs of so many events have as their input; nothing else is left of them."""
    kept = await triggered(world, name, {"event": {"subject": f"event.{name}"}, **how})
    await unanswered_soon(world, names.BATCHES, names.trigger_consumer(name, kept.generation))
    for number in range(events):
        await world.store.events.publish(f"event.{name}", b"%d" % number)
    await nothing_left(world.store, kept)
    mark = names.batch_mark(kept.generation)

    async def ended() -> bool:
        left = await world.store.reader.subject(names.BATCHES, names.batch_subject(kept.generation, ">"))
        return {mark} == {one.subject for one in left}

    await until(ended)
    inputs = sorted(bytes(one.input).decode() for one in await started(world.store, name))
    await all_ended(world, name, len(inputs))
    return inputs


async def triggered(world: World, name: str, source: dict[str, Any], **more: Any) -> StoredTrigger:
    """A trigger and its workflow, both of this name. What is not acknowledged comes again after 1 s, instead of 10."""
    await registered(world, name, step("crash.echo"), **more)
    await world.ask("POST", "/triggers", json={"name": name, "workflow": name, **source})

    async def consumed() -> StoredTrigger | None:
        kept = (await world.store.triggers.find(name)).kept
        return kept if kept is not None and kept.settled else None

    kept = await until(consumed)
    assert kept is not None
    await unanswered_soon(world, kept.stream, names.trigger_consumer(name, kept.generation))
    return kept


async def unanswered_soon(world: World, stream: str, consumer: str) -> None:
    info = await world.store.broker.api(f"CONSUMER.INFO.{stream}.{consumer}")
    request = {
        "stream_name": stream,
        "config": {**info["config"], "ack_wait": UNANSWERED_S * 10**9},
        "action": "update",
    }
    await world.store.broker.api(f"CONSUMER.CREATE.{stream}.{consumer}", request)


async def occurred(world: World, name: str, kept: StoredTrigger, runs: int) -> None:
    await all_ended(world, name, runs)
    await nothing_left(world.store, kept)
