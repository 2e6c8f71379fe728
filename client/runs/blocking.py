"""`RunHandle`: a run that a blocking client has started."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from typing import Any, TypeVar, overload

from penstock.client import requests
from penstock.client.connection import BlockingConnection
from penstock.client.live.blocking import follow
from penstock.client.runs.starting import AGAIN_S, WantedRun, late, result_of
from penstock.client.sending.following import Reconnects
from penstock.client.views import CancelledRun, EventView, RunView, Sent
from penstock.engine.errors import Unavailable

T = TypeVar("T")


class RunHandle:
    """A run that was started; `run_id` is its id. Made by `Client.run`, and used while that client is open."""

    def __init__(self, service: BlockingConnection, run: WantedRun) -> None:
        """Start the run. Raises NotFoundError, InvalidError, UnavailableError."""
        self._service, self._run = service, run
        if registering := run.registering():
            service.send(registering)
        self.run_id: str = service.send(run.starting()).run_id

    @overload
    def result(self, timeout: float | None = None) -> Any: ...
    @overload
    def result(self, timeout: float | None = None, *, type: type[T]) -> T: ...
    def result(self, timeout: float | None = None, *, type: Any = Any) -> Any:  # noqa: A002
        """The run's output, or what a step of it responds, when it is there; `type` is what it is converted to.

        Raises TimeoutError after `timeout` seconds (the run goes on), RunFailedError when the run failed or was
        cancelled, UnavailableError when the service stays away.
        """
        deadline = inf if timeout is None else time.monotonic() + timeout
        reconnects = Reconnects(self._service.retries)
        while True:
            left_s = deadline - time.monotonic()
            try:
                found = self._service.send(self._run.awaiting(left_s))
                reconnects.connected()
            except Unavailable as error:
                reconnects.failed(error)
                time.sleep(max(0.0, min(reconnects.pause_s, left_s)))
            else:
                if found.outcome != "running":
                    return result_of(found, type)
                time.sleep(max(0.0, min(AGAIN_S, left_s)))
            if timeout is not None and time.monotonic() >= deadline:
                raise late(self._run.workflow, timeout)

    def events(self, after: int = 0) -> Iterator[EventView]:
        """The run's history after stream sequence `after`, live, until the run ends: as `Client.follow`."""
        return follow(self._service, self.run_id, after)

    def view(self) -> RunView:
        """The run with its steps, as it is now."""
        return self._service.send(requests.get_run(self.run_id))

    def cancel(self, reason: str | None = None, *, compensate: bool = False) -> CancelledRun:
        """Cancel the run: as `Client.cancel`."""
        return self._service.send(requests.cancel(self.run_id, reason, compensate=compensate))

    def signal(self, name: str, payload: bytes = b"") -> Sent:
        """Send a signal to the run: as `Client.signal`."""
        return self._service.send(requests.signal(self.run_id, name, payload))
