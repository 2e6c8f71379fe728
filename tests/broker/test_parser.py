"""What the broker writes is taken apart the same wherever the network has cut it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, pairwise

import nats.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker import names
from penstock.broker.nats.wire.parser import LINE_MAX, QuickParser, Receive, ReceiveMany
from penstock.broker.store import Store

HEAD = b"NATS/1.0\r\nOwner-Seq: 7\r\n\r\n"
BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"", b"wait", b"\r\n", b"HMSG a 1 2 3\r\n", b"MSG b 1 5\r\nPING\r\n"]
)
AT_ONCE = pytest.mark.parametrize("at_once", [False, True], ids=["in_the_task", "at_once"])
MESSAGES = st.tuples(st.sampled_from([b"", b"reply.1"]), st.sampled_from([b"", HEAD]), BODIES)


class Told:
    """What a client is told, in order."""

    def __init__(self, receivers: Sequence[int] = ()) -> None:
        self.takers: dict[bytes, ReceiveMany] = {}
        self.receivers: dict[int, Receive] = {sid: partial(self._receive, sid) for sid in receivers}
        self.heard: list[object] = []
        self.on_message: Callable[[], None] = lambda: None

    @property
    def _error_cb(self) -> Callable[[Exception], Awaitable[None]]:
        return self._process_error

    async def _process_error(self, error: Exception) -> None:
        self.heard.append(error)

    def _receive(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> Awaitable[None] | None:
        if data == b"wait":
            return self._process_msg(sid, subject, reply, data, headers)
        self.heard.append((sid, subject, reply, data, headers))
        return None

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.heard.append((sid, subject, reply, data, headers))
        self.on_message()

    async def _process_err(self, err_msg: str) -> None:
        self.heard.append(err_msg)

    async def _process_ping(self) -> None:
        self.heard.append("ping")

    async def _process_pong(self) -> None:
        self.heard.append("pong")

    async def _process_info(self, info: dict[str, object]) -> None:
        self.heard.append(info)


def message(reply: bytes, headers: bytes, body: bytes, sid: int = 3) -> bytes:
    to = b"subject %d %b" % (sid, reply + b" " if reply else b"")
    if headers:
        return b"HMSG %b%d %d\r\n%b%b\r\n" % (to, len(headers), len(headers + body), headers, body)
    return b"MSG %b%d\r\n%b\r\n" % (to, len(body), body)


async def parsed(told: Told, *reads: bytes, at_once: bool = False) -> list[object]:
    """What the client is told when it reads these; `at_once`: as while its reading task waits for more."""
    parser = QuickParser(told)
    for read in reads:
        if rest := parser.take(read) if at_once else read:
            await parser.parse(rest)
    return told.heard


@settings(max_examples=200)
@given(
    st.lists(MESSAGES, max_size=6),
    st.lists(st.integers(0, 400), max_size=6),
    st.sampled_from([(), (3,)]),
    st.booleans(),
)
def test_messages_come_whole_wherever_they_are_cut(
    given: list[tuple[bytes, bytes, bytes]], cuts: list[int], receivers: Sequence[int], at_once: bool
) -> None:
    wire = b"PING\r\n".join(message(*one) for one in given)
    places = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    reads = [wire[begin:end] for begin, end in pairwise(places)]
    heard = asyncio.run(parsed(Told(receivers), *reads, at_once=at_once))
    expected = [[(3, b"subject", reply, body, headers), "ping"] for reply, headers, body in given]
    assert list(chain.from_iterable(expected))[:-1] == heard


@AT_ONCE
async def test_what_is_no_message_is_told_by_its_kind(at_once: bool) -> None:
    wire = b'INFO {"max_payload":5}\r\n+OK\r\nPING\r\nPONG\r\n-ERR \'Permissions Violation for "x"\'\r\n'
    assert [{"max_payload": 5}, "ping", "pong", "'permissions violation for \"x\"'"] == await parsed(
        Told(), wire, at_once=at_once
    )


@pytest.mark.parametrize(
    "wire",
    [
        b"HELLO\r\n",
        b"\r\n",
        b"MSG subject 3 x\r\n",
        b"MSG\r\n",
        b"MSG subject 3 -20\r\n",
        b"HMSG subject 3 five 5\r\n",
        b"HMSG subject 3 -5 5\r\n12345\r\n",
        b"HMSG subject 3 9 5\r\n12345\r\n",
        b"x" * LINE_MAX * 2,
    ],
)
@AT_ONCE
async def test_what_is_no_command_ends_the_connection(wire: bytes, at_once: bool) -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await parsed(Told((3,)), wire, at_once=at_once)


async def test_what_was_read_of_a_lost_connection_does_not_reach_the_next_one() -> None:
    """It may be lost while a message of it is passed on."""
    told = Told()
    parser = QuickParser(told)
    told.on_message = parser.reset
    await parser.parse(message(b"", b"", b"1") + message(b"", b"", b"2") + message(b"", b"", b"never whole")[:-5])
    told.on_message = lambda: None
    await parser.parse(message(b"", b"", b"3"))
    assert [b"1", b"3"] == [one[3] for one in told.heard if isinstance(one, tuple)]


@AT_ONCE
async def test_a_reader_of_many_messages_leaves_what_it_does_not_take(at_once: bool) -> None:
    told, first = Told(), message(b"reply", HEAD, b"1")

    def take(read: bytes, at: int, number: bytes) -> int:
        assert number == b"3"
        return at + len(first) if read.startswith(first, at) else at

    told.takers[b"3"] = take
    other = message(b"reply", HEAD, b"1", sid=4)
    heard = await parsed(told, first + first + message(b"reply", b"", b"2") + other + first, at_once=at_once)
    assert [(3, b"2"), (4, b"1")] == [(one[0], one[3]) for one in heard if isinstance(one, tuple)]


@AT_ONCE
@pytest.mark.parametrize("cut", [0, 9, 40])
async def test_a_reader_that_fails_gets_its_messages_one_by_one(at_once: bool, cut: int) -> None:
    told = Told()

    def take(read: bytes, at: int, number: bytes) -> int:
        raise KeyError("take")

    told.takers[b"3"] = take
    wire = message(b"reply", HEAD, b"1")
    heard = await parsed(told, wire[:cut], wire[cut:], at_once=at_once)
    assert {KeyError, tuple} == {type(one) for one in heard}
    assert [(3, b"subject", b"reply", b"1", HEAD)] == [one for one in heard if isinstance(one, tuple)]


@AT_ONCE
async def test_the_error_of_a_reader_is_reported_and_the_others_go_on(at_once: bool) -> None:
    told = Told((3, 4))

    def fail(*message: bytes) -> None:
        raise KeyError("receive")

    told.receivers[4] = fail
    heard = await parsed(told, message(b"", b"", b"1", 4) + message(b"", b"", b"2"), b"PING\r\n", at_once=at_once)
    assert ["KeyError", (3, b"subject", b"", b"2", b""), "ping"] == [
        type(one).__name__ if isinstance(one, Exception) else one for one in heard
    ]


async def test_what_needs_no_waiting_is_passed_on_at_once(store: Store) -> None:
    """Without a task between, which would be there a pass of the event loop later."""
    tasks: list[asyncio.Task[object] | None] = []
    got: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        tasks.append(asyncio.current_task())
        if len(tasks) == 2:
            got.set_result(None)

    inbox = store.broker.new_inbox()
    subscription = await store.broker.client.receive(inbox, receive)
    await store.broker.flush()
    await store.broker.publish(inbox, b"1")
    await store.broker.publish(inbox, b"2")
    async with asyncio.timeout(10):
        await got
    await store.broker.client.stop_receiving(subscription)
    assert [None, None] == tasks


async def test_a_large_message_is_put_together_once(store: Store) -> None:
    body = bytes(range(256)) * 4096 * 4
    got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def receive(subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        got.set_result(data)

    inbox = store.broker.new_inbox()
    subscription = await store.broker.client.receive(inbox, receive)
    await store.broker.publish(inbox, body, headers={names.OWNER_SEQ: "1"})
    async with asyncio.timeout(10):
        assert body == await got
    await store.broker.client.stop_receiving(subscription)
