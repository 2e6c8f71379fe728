"""The workflow of the load: a chain of steps that hand their input on; and the processes of its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from penstock.broker.embedded.child_program import ChildProgram

NAME = "loadtest-chain"
TASK = "loadtest.echo"
HOLD = "loadtest.hold"
SCRIPTS = Path(__file__).resolve().parent.parent
STOP_S_MAX = 12.0


def definition(steps: int, name: str = NAME, task: str = TASK, **more: str) -> bytes:
    """A chain of `steps` steps, each with the output of the one before as its input. `more` are fields of the
    workflow."""
    chain = [
        {"id": f"s{at}", "task": task, **({"depends_on": [f"s{at - 1}"]} if at > 1 else {})}
        for at in range(1, steps + 1)
    ]
    return msgspec.json.encode({"name": name, "steps": chain, **more})


def inputs(count: int, begin: int = 0) -> list[bytes]:
    """One small input per run, each different."""
    return [b'{"n":%d}' % number for number in range(begin, begin + count)]


@contextmanager
def workers(count: int, broker_url: str | None = None) -> Iterator[list[int]]:
    """Worker processes for the time of the block, as their process ids; they end gracefully, or else are killed."""
    with ExitStack() as stack:
        yield [stack.enter_context(_worker(broker_url)).pid for _ in range(count)]


@contextmanager
def bridge_workers(count: int, url: str, token: str) -> Iterator[list[int]]:
    """As `workers`, over the bridge."""
    with ExitStack() as stack:
        yield [stack.enter_context(_worker(None, "load.bridge_worker", url, token)).pid for _ in range(count)]


@contextmanager
def _worker(broker_url: str | None, *program: str) -> Iterator[ChildProgram]:
    process = ChildProgram([sys.executable, "-m", *(program or ("load.worker",))], _environ(broker_url))
    try:
        yield process
    finally:
        process.terminate()
        process.join(STOP_S_MAX)
        process.kill()


def _environ(broker_url: str | None) -> dict[str, str]:
    """Ours, so that the worker finds this package, speaks up only when something is wrong, and knows its broker."""
    path = os.pathsep.join(filter(None, (str(SCRIPTS), os.environ.get("PYTHONPATH"))))
    given = {} if broker_url is None else {"SERVICE_BROKER_URL": broker_url}
    return {**os.environ, "PYTHONPATH": path, "SERVICE_LOG_LEVEL": "warning", **given}
