"""The small pools in which an asyncio client keeps its connections."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import httpx2
import pytest

from penstock.client import AsyncClient
from penstock.client.sending import pools
from penstock.client.sending.pools import EACH_MAX, LIMITS, Pools
from tests.cli.conftest import Service

DEFINITION = {"name": "w", "steps": [{"id": "a", "task": "a"}]}


def test_each_request_gets_a_connection_and_the_first_pools_are_filled_first() -> None:
    found = Pools(lambda: httpx2.AsyncClient(limits=LIMITS))
    with ExitStack() as requests:
        used = [requests.enter_context(found.free()) for _ in range(2 * EACH_MAX + 1)]
        assert [EACH_MAX, EACH_MAX, 1] == [used.count(http) for http in dict.fromkeys(used)]
    with found.free() as http:
        assert used[0] is http


def test_when_all_are_in_use_a_request_waits_where_the_fewest_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "POOLS_MAX", 2)
    found = Pools(lambda: httpx2.AsyncClient(limits=LIMITS))
    with ExitStack() as requests:
        first = [requests.enter_context(found.free()) for _ in range(EACH_MAX)]
        second = [requests.enter_context(found.free()) for _ in range(EACH_MAX)]
        more = [requests.enter_context(found.free()) for _ in range(4)]
    assert [2, 2] == [more.count(first[0]), more.count(second[0])]


async def test_many_tasks_share_a_client(service: Service) -> None:
    service.on("GET /workflows/w", DEFINITION)
    async with AsyncClient(service.url) as client:
        answers = await asyncio.gather(*(client.workflow("w") for _ in range(5 * EACH_MAX)))
    assert ["w"] * 5 * EACH_MAX == [found.name for found in answers]


async def test_an_address_with_a_path_stays_before_every_request(service: Service) -> None:
    service.on("GET /penstock/workflows/w", DEFINITION)
    async with AsyncClient(f"{service.url}/penstock/") as client:
        assert "w" == (await client.workflow("w")).name
