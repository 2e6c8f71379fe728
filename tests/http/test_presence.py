"""Who waits is let go when the process stops, and from then on nobody begins to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from penstock.http.messages import presence
from penstock.http.messages.presence import Waiters, WatchableRequest


def request(receive: Any) -> WatchableRequest:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }
    return WatchableRequest(scope, receive)


async def nothing() -> Mapping[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("dismissed_before", [False, True])
async def test_a_time_limit_is_over_when_the_process_stops(dismissed_before: bool) -> None:
    waiters, waits = Waiters(), asyncio.Event()
    if dismissed_before:
        waiters.stop()
    else:
        asyncio.get_running_loop().call_soon(waiters.stop)
    with pytest.raises(TimeoutError):
        async with waiters.limit(60):
            await waits.wait()


@pytest.mark.parametrize("dismissed_before", [False, True])
async def test_a_presence_is_over_when_the_process_stops_though_its_client_is_there(dismissed_before: bool) -> None:
    waiters = Waiters()
    if dismissed_before:
        waiters.stop()
    async with waiters.presence(request(nothing)) as client:
        left: list[str] = []
        client.leave = lambda: left.append("left")
        waiters.stop()
        assert client.over.is_set()
        assert ["left"] == left
        assert not client.gone


async def test_a_client_that_goes_ends_its_own_presence_only() -> None:
    waiters = Waiters()

    async def gone() -> Mapping[str, Any]:
        return {"type": "http.disconnect"}

    async with waiters.presence(request(gone)) as client, waiters.presence(request(nothing)) as other:
        await client.over.wait()
        assert client.gone
        assert not other.over.is_set()


async def test_a_time_limit_for_a_client_is_over_when_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "WATCHED_AFTER_S", 0.0)

    async def gone() -> Mapping[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(TimeoutError):
        async with Waiters().limit_for(request(gone), 60):
            await asyncio.Event().wait()


async def test_a_time_limit_for_a_client_that_stays_is_that_of_the_block() -> None:
    async with Waiters().limit_for(request(nothing), 60):
        pass
    with pytest.raises(TimeoutError):
        async with Waiters().limit_for(request(nothing), 0.01):
            await asyncio.Event().wait()


async def test_items_come_until_the_process_stops_and_their_source_is_closed() -> None:
    waiters, closed = Waiters(), asyncio.Event()

    async def source() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
            await asyncio.Event().wait()
        finally:
            closed.set()

    found = []
    async for item in waiters.until_stopped(source()):
        found.append(item)
        if item == 2:
            asyncio.get_running_loop().call_soon(waiters.stop)
    assert [1, 2] == found
    assert closed.is_set()


async def test_items_end_with_their_source() -> None:
    async def source() -> AsyncGenerator[int]:
        yield 1

    assert [1] == [item async for item in Waiters().until_stopped(source())]


async def test_nobody_is_kept_in_mind_who_does_not_wait_any_more() -> None:
    waiters = Waiters()
    async with waiters.limit(60):
        pass
    async with waiters.presence(request(nothing)) as client:
        pass
    waiters.stop()
    assert not client.over.is_set()
