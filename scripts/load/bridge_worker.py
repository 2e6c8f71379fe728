"""One worker of the load over the bridge: `python -m load.bridge_worker URL TOKEN`, in the folder scripts/. It returns
what it gets.

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
EXCHANGE = b'{"worker_id":"load","resolve":[%%b],"poll":{"task_types":["%b"],"max_tasks":%d,"timeout_ms":30000}}' % (
    TASK.encode(),
    MAX_TASKS,
)
AGAIN_S = 0.1
LOOPS = 4  # while the answers of one are being stored, the others wait for tasks


class _Task(Struct, frozen=True):
    task_id: str
    input: Raw


class _Exchanged(Struct, frozen=True):
    tasks: list[_Task]


_EXCHANGED = msgspec.json.Decoder(_Exchanged)


async def work(pool: Pool) -> None:
    """For ever: the answers to all tasks that came leave together with the next poll."""
    answers: list[bytes] = []
    while True:
        try:
            answer = await pool.request("POST", "/v1/tasks/exchange", EXCHANGE % b",".join(answers))
        except LostError:
            await asyncio.sleep(AGAIN_S)
            continue
        if answer.status != 200:
            await asyncio.sleep(AGAIN_S)
            continue
        answers = [_answer(task) for task in _EXCHANGED.decode(answer.body).tasks]


def _answer(task: _Task) -> bytes:
    return b'{"task_id":"%b","action":"complete","output":%b}' % (task.task_id.encode(), bytes(task.input))


async def _until_terminated(url: str, token: str) -> None:
    pool = Pool(*address(url), token)
    working = asyncio.gather(*(work(pool) for _ in range(LOOPS)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    with suppress(asyncio.CancelledError):
        await working


def main() -> None:
    """Work until SIGTERM."""
    uvloop.run(_until_terminated(*sys.argv[1:]))


if __name__ == "__main__":
    main()
