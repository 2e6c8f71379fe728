"""What was subscribed to for a time is over after it, also when the connection was away at its end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from penstock.broker import names
from penstock.broker.nats.direct import open_reader
from penstock.broker.nats.publisher import open_publisher
from penstock.broker.nats.pull import open_pull
from penstock.broker.store import open_store
from penstock.broker.streams.provisioning import provision
from tests.support.own_broker import own_broker
from tests.support.waiting import until_true

RUN_ID = "0" * 32


async def test_what_ends_while_the_connection_is_away_is_not_subscribed_to_again(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            await store.history.last_seq()
            subscribed = dict(store.broker.client._subs)
            async with AsyncExitStack() as stack:
                watching = await stack.enter_async_context(aclosing(store.history.follow(RUN_ID)))
                assert await anext(watching) is None
                await stack.enter_async_context(store.checkpoints.change_notification("key"))
                await stack.enter_async_context(store.broker.answering("test.ping", b"{}"))
                await stack.enter_async_context(open_pull(store.broker, names.DEAD, "none", print, batch=1))
                await stack.enter_async_context(open_reader(store.broker))
                await stack.enter_async_context(open_publisher(store.broker))
                assert len(store.broker.client._subs) == len(subscribed) + 6
                await asyncio.to_thread(broker.kill)
                await until_true(lambda: not store.broker.connected)
            await asyncio.to_thread(broker.start)
            await until_true(lambda: store.broker.reconnects == 1)

            assert store.broker.client._subs.keys() == subscribed.keys()


async def test_a_recall_that_the_connection_does_not_survive_leaves_no_subscription(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            inbox = store.broker.new_inbox()
            subscription = await store.broker.client.receive(inbox, _ignore)
            await asyncio.to_thread(broker.kill)
            await until_true(lambda: not store.broker.connected)
            await store.broker.client.drain_receiving(subscription, 0.1)

            assert subscription not in store.broker.client._subs.values()


async def _ignore(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
    return None
