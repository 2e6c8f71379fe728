"""A bound on bytes in memory: who comes first is first, and nothing that was taken is lost."""

from __future__ import annotations

import asyncio

import pytest

from penstock.config.process.byte_gate import ByteGate, Share
from tests.support.waiting import until_true


async def taken(gate: ByteGate, size: int, order: list[int]) -> Share:
    share = await gate.take(size)
    order.append(size)
    return share


async def test_who_comes_first_is_let_in_first_even_if_a_smaller_one_would_fit() -> None:
    gate, order = ByteGate(10), list[int]()
    first = await gate.take(6)
    large, small = (asyncio.create_task(taken(gate, size, order)) for size in (8, 1))
    await asyncio.sleep(0)
    assert [] == order
    first.give_back()
    first.give_back()
    await asyncio.wait([large, small])
    assert [8, 1] == order
    (await large).keep(5)
    assert 4 == gate.free
    (await large).give_back()
    (await small).give_back()
    assert 10 == gate.free


async def test_more_than_there_is_counts_as_all() -> None:
    gate = ByteGate(10)
    share = await gate.take(100)
    assert (0, 10) == (gate.free, share.size)
    share.keep(50)
    assert 0 == gate.free
    share.give_back()
    assert 10 == gate.free


@pytest.mark.parametrize("let_in_first", [False, True])
async def test_who_stops_waiting_holds_up_nobody(let_in_first: bool) -> None:
    gate, order = ByteGate(10), list[int]()
    first = await gate.take(6)
    leaves, stays = (asyncio.create_task(taken(gate, size, order)) for size in (9, 4))
    await asyncio.sleep(0)
    if let_in_first:
        first.give_back()
    leaves.cancel()
    await until_true(lambda: order == [4])
    assert leaves.cancelled()
    first.give_back()
    (await stays).give_back()
    assert 10 == gate.free


async def test_who_is_passed_over_at_the_moment_it_stops_waiting_is_cancelled() -> None:
    gate = ByteGate(10)
    first = await gate.take(6)
    leaves = asyncio.create_task(gate.take(9))
    await asyncio.sleep(0)
    leaves.cancel()
    first.give_back()
    await asyncio.wait([leaves])
    assert leaves.cancelled()
    assert 10 == gate.free
