"""Who waits is let go when the process stops, and from then on nobody begins to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from penstock.http.messages.presence import Audience, PatientRequest


def request(receive: Any) -> PatientRequest:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }
    return PatientRequest(scope, receive)


async def nothing() -> Mapping[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@pytest.mark.parametrize("dismissed_before", [False, True])
async def test_a_time_limit_is_over_when_the_process_stops(dismissed_before: bool) -> None:
    audience, waits = Audience(), asyncio.Event()
    if dismissed_before:
        audience.dismiss()
    else:
        asyncio.get_running_loop().call_soon(audience.dismiss)
    with pytest.raises(TimeoutError):
        async with audience.limit(60):
            await waits.wait()


@pytest.mark.parametrize("dismissed_before", [False, True])
async def test_a_presence_is_over_when_the_process_stops_though_its_client_is_there(dismissed_before: bool) -> None:
    audience = Audience()
    if dismissed_before:
        audience.dismiss()
    async with audience.presence(request(nothing)) as client:
        left: list[str] = []
        client.leave = lambda: left.append("left")
        audience.dismiss()
        assert client.over.is_set()
        assert ["left"] == left
        assert not client.gone


async def test_a_client_that_goes_ends_its_own_presence_only() -> None:
    audience = Audience()

    async def gone() -> Mapping[str, Any]:
        return {"type": "http.disconnect"}

    async with audience.presence(request(gone)) as client, audience.presence(request(nothing)) as other:
        await client.over.wait()
        assert client.gone
        assert not other.over.is_set()


async def test_items_come_until_the_process_stops_and_their_source_is_closed() -> None:
    audience, closed = Audience(), asyncio.Event()

    async def source() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
            await asyncio.Event().wait()
        finally:
            closed.set()

    found = []
    async for item in audience.while_there(source()):
        found.append(item)
        if item == 2:
            asyncio.get_running_loop().call_soon(audience.dismiss)
    assert [1, 2] == found
    assert closed.is_set()


async def test_items_end_with_their_source() -> None:
    async def source() -> AsyncGenerator[int]:
        yield 1

    assert [1] == [item async for item in Audience().while_there(source())]


async def test_nobody_is_kept_in_mind_who_does_not_wait_any_more() -> None:
    audience = Audience()
    async with audience.limit(60):
        pass
    async with audience.presence(request(nothing)) as client:
        pass
    audience.dismiss()
    assert not client.over.is_set()
