"""Seeing a run end through the API: by a question that is answered at the end, by following its events, by asking again
and again.

Waiting is one request a run and the cheapest for the service, so it is the default of the loads.
Following gives the moment just as exactly, and costs a stream per run.
Asking costs the service two reads a time, and the Poller asks about twice a run: it learns how long runs take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .client import ENDED, Client

Watch = Callable[[str], Awaitable[str]]
"""Takes a run id; returns the status that the run has ended in."""

FIRST_GUESS_S = 0.005
TOO_LATE = 0.94  # what becomes of the first pause when the first question finds the run ended:
TOO_EARLY = 1.03  # and when it does not. One first question in three comes too late, so lateness cannot feed itself.
BETWEEN = 0.5  # of the first pause: between two questions
PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.5


class Poller:
    """Owned by one load."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._first_s = FIRST_GUESS_S

    async def watch(self, run_id: str) -> str:
        await asyncio.sleep(self._first_s)
        questions = 1
        while (status := await self._client.status(run_id)) not in ENDED:
            questions += 1
            await asyncio.sleep(max(self._first_s * BETWEEN, PAUSE_S_MIN))
        self._learn(questions == 1)
        return status

    def _learn(self, at_once: bool) -> None:
        self._first_s = min(max(self._first_s * (TOO_LATE if at_once else TOO_EARLY), PAUSE_S_MIN), PAUSE_S_MAX)


class Follower:
    """Owned by one load."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def watch(self, run_id: str) -> str:
        return (await self._client.ended(run_id)).removeprefix("workflow.")


def watch(kind: str, client: Client) -> Watch:
    """`wait`, `stream` or `poll`."""
    match kind:
        case "wait":
            return client.status_at_end
        case "poll":
            return Poller(client).watch
        case _:
            return Follower(client).watch
