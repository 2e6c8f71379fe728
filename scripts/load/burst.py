"""A burst, and people who list runs while it drains: thousands of long sticky runs at once, and a list asked for every
second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from .chain import TASK, definition
from .client import Client
from .connection import Answer

NAME = "loadtest-burst"
STEPS = 11
EVENTS = 2 + STEPS  # of each run, at least
LOOK_S = 1.0
DRAIN_S_MAX = 900.0
OK = 200


class Look(NamedTuple):
    """One list: its status, how long it took (s), and how far behind its index said to be (s; None: it did not say)."""

    status: int
    took_s: float
    lag_s: float | None


async def register(client: Client, sticky: str | None) -> None:
    """`sticky` is soft or hard; None: its steps are anybody's."""
    await client.register(definition(STEPS, NAME, TASK, **({} if sticky is None else {"sticky": sticky})))


async def looks(client: Client, begun: Callable[[], bool]) -> AsyncIterator[Look]:
    """A look every second, until all of the burst has `begun` and none of it is open. Raises TimeoutError when that
    takes too long."""
    begin = time.monotonic()
    while True:
        asked = time.monotonic()
        yield await _look(client)
        if begun() and await _is_over(client):
            return
        if asked - begin > DRAIN_S_MAX:
            raise TimeoutError(f"the burst has not drained in {DRAIN_S_MAX:g} s")
        await asyncio.sleep(max(0.0, asked + LOOK_S - time.monotonic()))


async def looks_until(client: Client, over: Callable[[], bool]) -> AsyncIterator[Look]:
    """A look twice a second until it is over, one at least: so few that they cost a bulk nothing to speak of."""
    while True:
        yield await _look(client)
        if over():
            return
        await asyncio.sleep(LOOK_S / 2)


async def _look(client: Client) -> Look:
    asked = time.monotonic()
    answer = await client.list("limit=1")
    return Look(answer.status, time.monotonic() - asked, _lag_s(answer))


async def _is_over(client: Client) -> bool:
    answers = [await client.list(f"workflow={NAME}&status={status}&limit=1") for status in ("pending", "running")]
    return all(answer.status == OK and answer.body == b"[]" for answer in answers)


def _lag_s(answer: Answer) -> float | None:
    lag = answer.headers.get(b"penstock-index-lag")
    return None if lag is None else float(lag.partition(b";")[2])
