"""The two ways to the service, as one: directly through the broker (direct.py), and over HTTP (bridge.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from penstock.broker.worker_messages import TaskPayload, WorkerRegistration
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome


class HeldTask(Protocol):
    """One task that this worker holds, until it is answered or given back. Its methods wait for a service that is
    away."""

    @property
    def deliveries(self) -> int: ...

    async def begin(self) -> TaskPayload | None:
        """Say that the work begins. None: nobody can carry this out, it was answered already."""

    async def answer(self, outcome: Outcome) -> None:
        """Return once it is stored what became of the task; it is held no longer."""

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Let another worker have it, after a while. Without the service it comes back by itself."""

    async def checkpoint(self, body: bytes) -> None: ...

    async def load_checkpoint(self) -> bytes | None: ...

    async def wait_signal(self, name: str) -> bytes: ...

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None: ...


Handle = Callable[[TaskFunction, HeldTask], Awaitable[None]]


class TaskIntake(Protocol):
    """What takes tasks and has them handled, for as long as its context lasts."""

    def cancel(self) -> None:
        """Cancel what runs: the end then waits for nothing else."""


class IntakeLimits(NamedTuple):
    """`group`: take only tasks of steps with this worker_group."""

    max_tasks: int
    group: str | None
    grace_s: float


class Transport(Protocol):
    """Open for as long as the worker runs."""

    name: str

    def registered(self, entry: WorkerRegistration) -> AbstractAsyncContextManager[None]:
        """In the workers bucket for the time of the block. Raises Unavailable where the service is not there yet."""

    def receiving(
        self, functions: Sequence[TaskFunction], handle: Handle, bounds: IntakeLimits
    ) -> AbstractAsyncContextManager[TaskIntake]:
        """Tasks of these functions are handled for the time of the block. Its end takes no more, gives back what has
        not begun, lets the rest finish for `grace_s`, then cancels it and gives it back."""
