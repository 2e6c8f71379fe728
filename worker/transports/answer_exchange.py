"""Sends reports together with the next poll while a worker of the bridge is full: one request instead of two.

A worker that is not full has a pending poll already; its reports are sent at once, each in its own request.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.broker.worker_protocol.bridge_messages import (
    ExchangeTasks,
    NextPoll,
    PolledTask,
    PollTasks,
    ResolveTask,
    TaskAnswer,
)
from penstock.engine.errors import NotFound, PenstockError, Unavailable
from penstock.worker.transports.bridge_client import BridgeClient, refusal_of

# The longest wait of a poll that carries answers: the service confirms them when the poll ends.
EXCHANGE_MS_MAX = 1000


class _Leaving(NamedTuple):
    answer: TaskAnswer
    done: asyncio.Future[None]


class AnswerExchange:
    """Owned by the worker's polling loop, which sets `open` when it is about to poll."""

    def __init__(self, client: BridgeClient) -> None:
        self._client = client
        self._waiting: list[_Leaving] = []
        self.room = asyncio.Event()  # an answer is here, so that there is room for another task
        self.open = False
        self.leaving = 0  # answers that are here, or on their way together with a poll: their tasks take no room
        self._known = True  # the service has exchanges

    async def resolve(self, task_id: str, resolution: ResolveTask) -> None:
        """As the client's method, at once or with the next poll."""
        if not self.open or not self._known:
            await self._client.resolve(task_id, resolution)
            return
        fields = {name: getattr(resolution, name) for name in ResolveTask.__struct_fields__}
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Leaving(TaskAnswer(task_id=task_id, **fields), done))
        self.leaving += 1
        self.room.set()
        try:
            await done
        finally:
            self.leaving -= 1

    async def poll(self, request: PollTasks) -> list[PolledTask]:
        """As the client's method, with the reports that wait here."""
        taken, self._waiting = self._waiting, []
        if not taken:
            return await self._client.poll(request)
        try:
            return await self._exchanged(request, taken)
        except NotFound as error:
            self._known = False
            self._fail(taken, error)
            return []
        except PenstockError as error:
            self._fail(taken, error)
            raise
        finally:
            self._fail(taken, None)

    def close(self) -> None:
        """No further poll comes: send each waiting report in its own request."""
        self.open = False
        taken, self._waiting = self._waiting, []
        self._fail(taken, None)

    async def _exchanged(self, request: PollTasks, taken: list[_Leaving]) -> list[PolledTask]:
        timeout_ms = min(request.timeout_ms, EXCHANGE_MS_MAX)
        poll = NextPoll(request.task_types, request.max_tasks, timeout_ms, request.worker_group, request.builtin)
        found = await self._client.exchange(ExchangeTasks([one.answer for one in taken], poll, request.worker_id))
        for one, resolved in zip(taken, found.resolved, strict=True):
            if error := refusal_of(resolved):
                _end(one, error)
            elif not one.done.done():
                one.done.set_result(None)
        return found.tasks

    def _fail(self, taken: list[_Leaving], error: PenstockError | None) -> None:
        """Fail pending reports, so that they are sent again: it is unknown whether they arrived."""
        for one in taken:
            _end(one, Unavailable(str(error) if error else "the exchange was given up"))


def _end(one: _Leaving, error: PenstockError) -> None:
    if not one.done.done():
        one.done.set_exception(error)
