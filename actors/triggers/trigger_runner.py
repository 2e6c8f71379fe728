"""Running triggers: every engine consumes the events of all triggers, and follows each change of them.

Engines share the consumer of a trigger: a trigger event is delivered to one of them, and to another one if that dies.
All state here is a copy of what the broker stores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import NoReturn

from penstock.actors.triggers.reconcile import prepare, reconcile
from penstock.actors.triggers.trigger_events import TriggerEventHandler
from penstock.broker import names
from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.broker.triggers.sources import BATCH
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.config.limits import EVENT_FAILURES_MAX
from penstock.config.logging import get_logger
from penstock.config.process.background import background, report
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import NotFound, PenstockError, Unavailable

HANDLERS = 16
POLL_S = 10.0  # a change without a notification is seen this late
CHECK_S = 30.0  # a consumer or schedule that was lost at the broker is created again this late
RETRY_S = 1.0

log = get_logger()


class Listener:
    """This process's consumer of one generation of a trigger. `waiting` deliveries are queued or being handled."""

    def __init__(self, name: str, generation: str) -> None:
        self.name, self.generation = name, generation
        self.waiting = 0
        self.checked_at = time.monotonic()
        self.closed = False
        self.pull: Pull | None = None
        self.ticks: Pull | None = None  # of its batches
        self.stack = AsyncExitStack()

    def is_fresh(self) -> bool:
        """Whether its consumer and schedule were checked less than CHECK_S ago."""
        return time.monotonic() - self.checked_at < CHECK_S

    def room(self) -> int:
        return 0 if self.closed else BATCH - self.waiting


class TriggerRunner:
    """Keeps a listener for each active trigger. Owned by `open_triggers`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._handler = TriggerEventHandler(store)
        self._listeners: dict[str, Listener] = {}
        self._queue: asyncio.Queue[tuple[Listener, Delivery]] = asyncio.Queue()  # bounded by `Listener.room`
        self._changed = asyncio.Event()
        self.followed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def reconnected(self) -> None:
        self.notify()

    async def follow(self) -> None:
        """Start and stop listeners whenever triggers change, for ever."""
        while True:
            self._changed.clear()
            try:
                await self._update_listeners()
                self.followed.set()
            except Exception as error:
                if isinstance(error, PenstockError):
                    log.warning("triggers_wait_for_broker", error=str(error))
                else:
                    report("triggers", error)
                await asyncio.sleep(RETRY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()

    async def handle(self) -> None:
        """Handle deliveries, for ever."""
        while True:
            listener, delivery = await self._queue.get()
            if not listener.closed:  # else it is not acknowledged, and delivered again if it is still wanted
                await self._handle(listener, delivery)
            listener.waiting -= 1
            for pull in (listener.pull, listener.ticks):
                if pull is not None and not listener.closed:
                    with suppress(Unavailable):
                        await pull.top_up()

    async def close(self) -> None:
        """Stop all listeners. Deliveries not yet handled are given back, for another engine at once."""
        for listener in list(self._listeners.values()):
            await self._stop(listener)
        while not self._queue.empty():
            await _give_back(self._queue.get_nowait()[1])

    async def _update_listeners(self) -> None:
        """Stop listeners of former generations, start those of new ones. An error of one does not stop the others."""
        kept = await self._store.triggers.all()
        wanted = {one.generation for one in kept}
        for listener in [listener for generation, listener in self._listeners.items() if generation not in wanted]:
            await self._stop(listener)
        for one in kept:
            try:
                await self._listen(one)
            except Unavailable:
                raise
            except Exception as error:
                log.error("trigger_cannot_listen", trigger=one.trigger.name, error=f"{type(error).__name__}: {error}")

    async def _listen(self, kept: StoredTrigger) -> None:
        """Start the trigger's listener. For one that listens already: create its consumer and schedule again, every
        CHECK_S, if they are gone."""
        listener = self._listeners.get(kept.generation)
        if kept.settled and (listener.is_fresh() if listener else not kept.active):
            return
        current: StoredTrigger | None = kept
        try:
            if kept.settled:
                await prepare(self._store, kept)
            else:
                current = await reconcile(self._store, kept.trigger.name)
        except NotFound:
            current = await reconcile(self._store, kept.trigger.name)
        if listener is not None:
            listener.checked_at = time.monotonic()
        if current is not None and current.active and current.generation not in self._listeners:
            await self._begin(current)

    async def _begin(self, kept: StoredTrigger) -> None:
        listener = Listener(kept.trigger.name, kept.generation)

        def take(delivery: Delivery) -> None:
            listener.waiting += 1
            self._queue.put_nowait((listener, delivery))

        listener.pull = await listener.stack.enter_async_context(self._store.sources.consume(kept, take, listener.room))
        if kept.trigger.batching is not None:
            ticks = self._store.sources.consume_ticks(kept, take, listener.room)
            listener.ticks = await listener.stack.enter_async_context(ticks)
        self._listeners[kept.generation] = listener
        log.info("trigger_listening", trigger=kept.trigger.name, kind=kept.trigger.kind)

    async def _stop(self, listener: Listener) -> None:
        listener.closed = True
        self._listeners.pop(listener.generation, None)
        await listener.stack.aclose()
        log.info("trigger_listening_ended", trigger=listener.name)

    async def _handle(self, listener: Listener, delivery: Delivery) -> None:
        try:
            await self._handler.handle(listener.name, listener.generation, delivery)
            await delivery.ack()  # last: a crash before this line brings it again
        except PenstockError as error:
            log_rate_limited(log, "trigger_waits", trigger=listener.name, error=str(error))
            await _give_back(delivery, RETRY_S)
        except asyncio.CancelledError:
            await _give_back(delivery)
            raise
        except Exception as error:
            await self._failed(listener, delivery, error)

    async def _failed(self, listener: Listener, delivery: Delivery, error: Exception) -> None:
        """Retry an event whose handling failed; after EVENT_FAILURES_MAX deliveries make it a dead letter."""
        log.error("trigger_event_failed", trigger=listener.name, deliveries=delivery.deliveries, exc_info=error)
        if delivery.deliveries < EVENT_FAILURES_MAX or names.is_batch_tick(delivery.subject):  # a batch is kept
            await _give_back(delivery, RETRY_S)
            return
        try:
            await self._handler.give_up(
                listener.name, listener.generation, delivery, f"{type(error).__name__}: {error}"
            )
            await delivery.ack()
        except Exception as dead_letter_error:
            log.error("trigger_event_not_dead_lettered", trigger=listener.name, exc_info=dead_letter_error)
            await _give_back(delivery, RETRY_S)


async def _give_back(delivery: Delivery, delay_s: float = 0.0) -> None:
    with suppress(PenstockError):  # then it is delivered again after the consumer's ack wait
        await delivery.give_back(delay_s)


@asynccontextmanager
async def open_triggers(store: Store) -> AsyncIterator[TriggerRunner]:
    """Run all triggers for the time of the block, which begins once all listeners have started."""
    triggers = TriggerRunner(store)
    store.broker.on_reconnect.append(triggers.reconnected)
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(store.triggers.notifying(triggers.notify))
            await stack.enter_async_context(background(triggers.follow(), name="triggers"))
            for _ in range(HANDLERS):
                await stack.enter_async_context(background(triggers.handle(), name="trigger_events"))
            await triggers.followed.wait()
            await stack.enter_async_context(store.broker.answering(names.TRIGGERS_PING, b"{}"))
            log.info("triggers_ready")
            yield triggers
    finally:
        store.broker.on_reconnect.remove(triggers.reconnected)
        await triggers.close()


async def serve_triggers(store: Store) -> NoReturn:
    """Run the triggers until cancelled."""
    async with open_triggers(store):
        await asyncio.Event().wait()
    raise AssertionError("nobody sets it")
