"""Pipelined publishing: every message gets its answer, or is sent again until it does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.broker import names
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Invalid, PenstockError, TooLarge
from tests.support.line import line
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until_true


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as broker:
        yield broker


async def stored(store: Store, subject: str) -> list[bytes]:
    return [one.data for one in await store.reader.subject(names.DEAD, subject)]


async def test_answers_come_to_their_own_messages(store: Store) -> None:
    answers = await asyncio.gather(*(store.publisher.send(f"dead.order.{n}", b"%d" % n) for n in range(500)))
    seqs = [ack_seq(answer) for answer in answers]
    assert list(range(seqs[0], seqs[0] + 500)) == seqs
    assert 0 == store.publisher.in_flight


async def test_a_repeated_message_id_is_stored_once_and_answered_with_the_first_sequence(store: Store) -> None:
    first, second = [ack_seq(await store.publisher.send("dead.once", b"x", {MSG_ID: "once"})) for _ in range(2)]
    assert first == second
    assert [b"x"] == await stored(store, "dead.once")


async def test_what_leaves_in_one_pass_of_the_event_loop_is_written_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write wakes up the broker."""
    transport = store.broker.client._transport
    assert transport is not None
    written, write = list[list[bytes]](), transport.writelines

    def noted(lines: list[bytes]) -> None:
        written.append(list(lines))
        write(lines)

    monkeypatch.setattr(transport, "writelines", noted)
    sent = store.publisher.send("dead.together", b"1")
    subscription = store.broker.client.receive_briefly("test.together", _ignore)
    await store.broker.publish("test.together", b"2")
    store.broker.publish_later("test.later", b"3")
    await sent
    store.broker.client.stop_receiving_later(subscription)
    commands = next(lines for lines in written if any(b"dead.together" in line for line in lines))
    assert [b"SUB test.together", b"PUB test.together", b"PUB test.later", b"PUB dead.together"] == [
        b" ".join(command.split()[:2]) for command in commands
    ]


async def _ignore(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
    return None


async def test_messages_are_stored_in_the_order_in_which_they_were_sent(store: Store) -> None:
    """With and without headers, small and large: not all of them are written in the same way."""
    large = bytes(store.broker.max_payload - 60_000)
    bodies = [large if n % 50 == 49 else b"%d" % n for n in range(200)]
    sent = [
        store.publisher.send("dead.mixed", body, {MSG_ID: f"mixed-{n}"} if n % 3 else None)
        for n, body in enumerate(bodies)
    ]
    seqs = [ack_seq(answer) for answer in await asyncio.gather(*sent)]
    assert sorted(seqs) == seqs
    assert bodies == await stored(store, "dead.mixed")


@pytest.mark.parametrize("value", ["one\r\nNats-Rollup: all", "one\ntwo", "one\rtwo", "one\x85two\u2028", "", "  "])
async def test_a_header_of_a_stranger_begins_no_other_header(store: Store, value: str) -> None:
    await store.publisher.send("dead.header", b"before")
    await store.publisher.send(
        "dead.header", b"x", {"Dead-Error": value, MSG_ID: f"header-{value!r}".replace("\\", "/")}
    )
    found = await store.reader.subject(names.DEAD, "dead.header")
    assert b"before" in [one.data for one in found]
    assert b"\r\nNats-Rollup" not in found[-1].headers


async def test_a_subject_that_is_two_is_never_sent(store: Store) -> None:
    sent = store.publisher.send("dead.two words", b"x", {MSG_ID: "two"})
    await store.publisher.send("dead.word", b"x", {MSG_ID: "one"})
    assert not sent.done()
    assert 0 == store.broker.reconnects
    sent.cancel()


async def test_a_stale_expectation_is_a_conflict(store: Store) -> None:
    await store.publisher.send("dead.cas", b"1", {EXPECT_SEQ: "0"})
    with pytest.raises(Conflict, match="wrong last sequence"):
        await store.publisher.send("dead.cas", b"2", {EXPECT_SEQ: "0"})
    assert [b"1"] == await stored(store, "dead.cas")
    assert 0 == store.publisher.in_flight


async def test_a_refusal_ends_only_its_own_message(store: Store) -> None:
    good = store.publisher.send("dead.good", b"x")
    with pytest.raises(PenstockError, match="TTL"):
        await store.publisher.send("dead.bad", b"x", {EXPECT_SEQ: "0", "Nats-TTL": "never ever"})
    assert ack_seq(await good)


async def test_a_message_that_no_broker_takes_is_too_large(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.publisher.send("dead.large", bytes(store.broker.max_payload + 1))
    assert 0 == store.publisher.in_flight


async def test_a_message_that_fits_only_without_its_headers_is_too_large(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.publisher.send("dead.large", bytes(store.broker.max_payload - 8), {MSG_ID: "large"})
    assert ack_seq(await store.publisher.send("dead.large", b"the connection lives"))


async def test_headers_count_by_their_bytes_and_the_connection_stays(store: Store) -> None:
    """Else the broker cuts the connection, and again at each repeat: for everything that this process sends."""
    body, smileys = bytes(store.publisher.body_bytes_max), {"Dead-Error": "😀" * 1100}
    with pytest.raises(TooLarge, match="bytes is larger than the broker accepts"):
        await store.publisher.send("dead.smileys", body, {**smileys, MSG_ID: "x"})
    with pytest.raises(Invalid, match="larger than the broker accepts"):
        await store.broker.publish("dead.smileys", body, headers={**smileys, MSG_ID: "x"})
    assert await store.publisher.send("dead.smileys", body, {"Dead-Error": "😀" * 1000})
    assert (0, 1) == (store.broker.reconnects, len(await stored(store, "dead.smileys")))


async def test_the_largest_message_is_stored(store: Store) -> None:
    body = bytes(store.broker.max_payload - 4096)
    await store.publisher.send("dead.fits", body, {MSG_ID: "fits"})
    assert [body] == await stored(store, "dead.fits")


@pytest.mark.parametrize("ending", ["restart", "kill"])
async def test_a_restart_loses_nothing_and_stores_nothing_twice(restartable: OwnBroker, ending: str) -> None:
    def away_and_back() -> None:
        if ending == "kill":
            restartable.kill()
            restartable.start()
        else:
            restartable.restart()

    async with open_store(restartable.settings, "test") as store:
        await provision(store.broker, restartable.settings)
        back = asyncio.create_task(asyncio.to_thread(away_and_back))
        sent, number = [], 0
        while not back.done() or number < 3000:
            bodies = [b"%d" % n for n in range(number, number + 20)]
            number += 20
            sent += [
                store.publisher.send("dead.restart", body, {MSG_ID: f"restart.{body.decode()}"}) for body in bodies
            ]
            await asyncio.wait(sent[-20:], timeout=0.005)
        await asyncio.wait_for(asyncio.gather(*sent), 20)
        found = await stored(store, "dead.restart")
    assert {b"%d" % n for n in range(number)} == set(found)
    assert number == len(found)


async def test_a_full_publisher_has_room_again_as_answers_come(
    restartable: OwnBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.nats.publisher.IN_FLIGHT_MAX", 10)
    monkeypatch.setattr("penstock.broker.nats.publisher.IN_FLIGHT_BYTES_MAX", 1000)
    async with (
        line(restartable.settings.port) as wire,
        open_store(msgspec.structs.replace(restartable.settings, url=wire.url), "test") as store,
    ):
        await provision(store.broker, restartable.settings)
        for messages, size in ((10, 1), (1, 1000)):
            wire.cut()
            for number in range(messages):
                assert not store.publisher.full
                store.publisher.send(f"dead.room.{number}", bytes(size))
            assert store.publisher.full
            waits = asyncio.create_task(store.publisher.room())
            assert not (await asyncio.wait([waits], timeout=0.05))[0]
            wire.mend()
            await asyncio.wait_for(waits, 20)
            assert not store.publisher.full
            await until_true(lambda: store.publisher.in_flight == 0)
        store.publisher.send("nobody.listens.here", bytes(1000)).cancel()
        assert store.publisher.full
        await asyncio.wait_for(store.publisher.room(), 20)  # what nobody waits for takes no room for long


@pytest.mark.usefixtures("store")  # its streams are there
async def test_callers_that_wait_for_room_go_on_in_their_order_one_for_each_answer(
    broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.nats.publisher.IN_FLIGHT_MAX", 3)
    order: list[int] = []
    async with open_store(broker_settings, "test") as store:
        publisher = store.publisher

        async def caller(number: int) -> None:
            await publisher.room()
            order.append(number)
            assert publisher.in_flight < 3
            await publisher.send(f"dead.turn.{number}", b"x", {MSG_ID: f"turn.{number}"})

        callers = [asyncio.create_task(caller(number)) for number in range(20)]
        await asyncio.sleep(0)
        assert [0, 1, 2] == order
        for gone in (callers[5], callers[6]):  # they take nobody's turn
            gone.cancel()
        await asyncio.wait_for(asyncio.wait(callers), 20)
    assert [number for number in range(20) if number not in (5, 6)] == order


async def test_a_message_whose_future_is_cancelled_is_forgotten(broker_settings: BrokerSettings) -> None:
    async with open_store(broker_settings, "test") as store:
        unanswered = store.publisher.send("nobody.listens.here", b"x")
        await store.broker.flush()
        assert 1 == store.publisher.in_flight
        unanswered.cancel()
        async with asyncio.timeout(10):
            while store.publisher.in_flight:
                await store.broker.flush()


async def test_who_waits_for_an_answer_waits_no_longer_than_the_publisher_lives(
    broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(broker_settings, "test") as store:
        unanswered = store.publisher.send("nobody.listens.here", b"x")
        monkeypatch.setattr("penstock.broker.nats.publisher.IN_FLIGHT_MAX", 1)
        waits = asyncio.create_task(store.publisher.room())
        await store.broker.flush()
        assert not unanswered.done()
        assert not waits.done()
    await asyncio.wait([waits], timeout=10)

    assert unanswered.cancelled()
    assert waits.cancelled()
