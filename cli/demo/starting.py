"""Waiting for what a demonstration starts: a service, a worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import click

from penstock.engine.errors import PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.client import Client

SERVICE_STARTS_S_MAX = 30.0
WORKER_STARTS_S_MAX = 30.0
LAST_LINES = 5
POLL_S = 0.05


def await_ready(client: Client, url: str, ended: Callable[[], bool] = lambda: False) -> None:
    """Return once the service is ready. Raises Unavailable when it is not within SERVICE_STARTS_S_MAX, or has
    `ended`."""
    deadline, printed = time.monotonic() + SERVICE_STARTS_S_MAX, False
    while True:
        try:
            return client.ready()
        except Unavailable:
            if time.monotonic() > deadline or ended():
                raise
        if not printed:
            click.echo(
                f"waiting for the service at {url} to be ready, at most {SERVICE_STARTS_S_MAX:g} s ...", err=True
            )
            printed = True
        time.sleep(POLL_S)


def await_registered(client: Client, pid: int, ended: Callable[[], bool], log: IO[bytes]) -> None:
    """Wait until the service lists the worker with this process id. Raises PenstockError with the end of its log when
    it does not."""
    deadline = time.monotonic() + WORKER_STARTS_S_MAX
    while all(worker.pid != pid for worker in client.workers()):
        if ended() or time.monotonic() > deadline:
            broker = os.environ.get("SERVICE_BROKER_URL", "not set")
            raise PenstockError(
                f"the worker did not reach the service's broker (SERVICE_BROKER_URL is {broker}):\n{last_lines(log)}"
            )
        time.sleep(POLL_S)


def last_lines(log: IO[bytes]) -> str:
    """The end of a log."""
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:])
