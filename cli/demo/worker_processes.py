"""The workers of the showcase, each a process of its own, and the worker of http steps."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

from penstock.broker.embedded.child_program import ChildProgram
from penstock.cli.demo.starting import await_registered
from penstock.client import Client

STOP_S_MAX = 15.0


@contextmanager
def worker_processes(client: Client, modules: Sequence[str], environ: Mapping[str, str], url: str) -> Iterator[None]:
    """Workers that are registered, for the time of the block; http steps may reach the service at `url`. Raises
    PenstockError when one does not get there."""
    parts = urlsplit(url)
    http = ["penstock.cli.main", "worker", "http", f"--http-allow={parts.hostname}:{parts.port or 80}"]
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        processes = [
            ChildProgram([sys.executable, "-P", "-m", *arguments], {**os.environ, **environ}, log)
            for arguments in (http, *([module] for module in modules))
        ]
        stack.callback(_stop, processes)
        for process in processes:
            await_registered(client, process.pid, partial(_has_ended, process), log)
        yield


def _has_ended(process: ChildProgram) -> bool:
    return process.exitcode is not None


def _stop(processes: Sequence[ChildProgram]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(STOP_S_MAX)
        process.kill()
