"""What was subscribed to for a time is over after it, also when the connection was away at its end, and what was
forwarded before it is answered."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import msgspec
import nats.errors
import pytest
import uvloop

from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.nats.direct import open_reader
from penstock.broker.nats.publisher import open_publisher
from penstock.broker.nats.pull import open_pull
from penstock.broker.nats.wire.commands import publish_command
from penstock.broker.records.leases import TASK_ID
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.process.background import start as start_task
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from tests.support.line import line
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


async def test_what_is_forwarded_before_a_holder_ends_is_answered(store: Store, embedded: EmbeddedBroker) -> None:
    """Also what has reached the broker, and has not been read from the connection."""

    async def carry_out(task_id: str, body: bytes) -> bytes:
        return f"{task_id}: {body.decode()}".encode()

    with socket.create_connection(("127.0.0.1", embedded.settings.port), 10) as sender:
        async with store.leases.forwarded("holder", carry_out):
            await store.broker.flush()
            report = publish_command(names.forward_subject("holder"), "answers", b"done", {TASK_ID: "run.s"})
            sender.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB answers 1\r\n%bPING\r\n' % (report or b""))
            _read_to(sender, b"PONG")  # nothing else runs in this process meanwhile
        assert b"run.s: done" in await asyncio.to_thread(_read_to, sender, b"done")


async def test_a_flush_and_the_end_of_a_subscription_are_behind_what_was_sent_before(
    broker_settings: BrokerSettings,
) -> None:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(line(broker_settings.port))
        settings = msgspec.structs.replace(broker_settings, url=wire.url)
        store = await stack.enter_async_context(open_store(settings, "test"))
        subscription = await store.broker.client.receive(store.broker.new_inbox(), _ignore)
        await store.broker.flush()
        wire.cut()
        flushing = asyncio.create_task(_published_and_flushed(store))
        await until_true(lambda: b"PING" in wire.late)
        assert wire.late.index(b"PUB told") < wire.late.index(b"PING")
        wire.late.clear()
        draining = asyncio.create_task(store.broker.client.drain_receiving(subscription, 10))
        await until_true(lambda: b"PING" in wire.late)
        assert wire.late.index(b"UNSUB") < wire.late.index(b"PING")
        wire.mend()
        await flushing
        await draining


async def test_a_brief_subscription_lives_until_its_end_also_beyond_a_lost_connection(tmp_path: Path) -> None:
    came = asyncio.Event()

    async def receive(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        came.set()

    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            client = store.broker.client
            subscription = client.receive_briefly("test.brief", receive)
            await _published(store, "test.brief")
            assert came.is_set()
            await asyncio.to_thread(broker.kill)
            await until_true(lambda: not store.broker.connected)
            beside = client.receive_briefly("test.beside", receive)
            await asyncio.to_thread(broker.start)
            await until_true(lambda: store.broker.reconnects == 1)
            for subject in ("test.brief", "test.beside"):
                came.clear()
                await _published(store, subject)
                assert came.is_set()
            came.clear()
            for one in (subscription, beside):
                client.stop_receiving_later(one)
            for subject in ("test.brief", "test.beside"):
                await _published(store, subject)
            assert not came.is_set()
            assert not {subscription._id, beside._id} & client._subs.keys()


async def _published(store: Store, subject: str) -> None:
    """Return when the message is there, for whoever has subscribed to it."""
    await store.broker.publish(subject, b"")
    await store.broker.flush()


async def _published_and_flushed(store: Store) -> None:
    await store.broker.publish("told", b"")
    await store.broker.flush()


def _read_to(line: socket.socket, word: bytes) -> bytes:
    """What the broker writes to a client, to this word. Raises TimeoutError."""
    found = b""
    while word not in found:
        found += line.recv(4096) or pytest.fail("the broker has closed the connection")
    return found


async def _ignore(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
    return None


def test_a_connection_that_is_closed_unnoticed_is_lost_as_any_other(broker_settings: BrokerSettings) -> None:
    """With the loop of the service, whose closed connections raise errors of their own."""

    async def request_over_a_closed_one() -> bytes:
        async with open_store(broker_settings, "closed") as store:
            client: Any = store.broker.client
            await store.broker.request("$JS.API.INFO")
            for task in (client._reading_task, client._flusher_task):  # who would notice
                task.cancel()
            await asyncio.wait([client._reading_task, client._flusher_task])
            client._transport._io_writer.transport.abort()
            await asyncio.sleep(0)
            assert client.is_connected
            request = start_task(store.broker.request("$JS.API.INFO"), name="request", expected=Unavailable)
            await asyncio.sleep(0)
            await client._process_op_err(nats.errors.StaleConnectionError())
            with pytest.raises(Unavailable):
                await request
            await until_true(lambda: store.broker.reconnects > 0)
            return (await store.broker.request("$JS.API.INFO")).data

    assert b'"streams"' in uvloop.run(request_over_a_closed_one())
