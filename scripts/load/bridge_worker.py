"""One worker of the load over the bridge: `python -m load.bridge_worker URL TOKEN`, in the folder scripts/. It returns what it gets.

It talks over the load's own lean connections: the HTTP client of a worker is not what is measured.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress

import msgspec
import uvloop
from msgspec import Raw, Struct

from .chain import TASK
from .client import address
from .connection import LostError, Pool

MAX_TASKS = 100
POLL = b'{"task_types":["%b"],"max_tasks":%d,"timeout_ms":30000,"worker_id":"load"}' % (TASK.encode(), MAX_TASKS)
AGAIN_S = 0.1
AT_ONCE_MAX = 500


class _Task(Struct, frozen=True):
    task_id: str
    input: Raw


_TASKS = msgspec.json.Decoder(list[_Task])


async def work(pool: Pool) -> None:
    """Poll for ever; answers leave while the next poll waits already."""
    slots = asyncio.Semaphore(AT_ONCE_MAX)
    answers: set[asyncio.Task[None]] = set()
    while True:
        try:
            answer = await pool.request("POST", "/v1/tasks/poll", POLL)
        except LostError:
            await asyncio.sleep(AGAIN_S)
            continue
        if answer.status != 200:
            await asyncio.sleep(AGAIN_S)
            continue
        for task in _TASKS.decode(answer.body):
            await slots.acquire()
            resolving = asyncio.create_task(_resolve(pool, task, slots))
            answers.add(resolving)
            resolving.add_done_callback(answers.discard)
        await asyncio.sleep(0)  # the answers leave first


async def _resolve(pool: Pool, task: _Task, slots: asyncio.Semaphore) -> None:
    body = b'{"action":"complete","output":%b}' % bytes(task.input)
    try:
        await pool.request("POST", f"/v1/tasks/{task.task_id}/resolve", body)
    finally:
        slots.release()


async def _until_terminated(url: str, token: str) -> None:
    working = asyncio.create_task(work(Pool(*address(url), token)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    with suppress(asyncio.CancelledError):
        await working


def main() -> None:
    """Work until SIGTERM."""
    uvloop.run(_until_terminated(*sys.argv[1:]))


if __name__ == "__main__":
    main()
