"""The protocol of both transports: directly through the broker (direct.py), and over HTTP (bridge.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from penstock.broker.worker_messages import TaskPayload, WorkerRegistration
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome


class HeldTask(Protocol):
    """One task that this worker holds, until it is reported or given back. Its methods wait while the service is
    unavailable."""

    @property
    def deliveries(self) -> int: ...

    async def begin(self) -> TaskPayload | None:
        """Report that the work begins. None: the task cannot be executed, its step has been failed."""

    async def answer(self, outcome: Outcome) -> None:
        """Report the outcome; returns when it is stored, and the task is no longer held."""

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Let another worker have it, after a while. If the service is unavailable, it is delivered again after its ack
        wait."""

    async def checkpoint(self, body: bytes) -> None: ...

    async def load_checkpoint(self) -> bytes | None: ...

    async def wait_signal(self, name: str) -> bytes: ...

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None: ...


Handle = Callable[[TaskFunction, HeldTask], Awaitable[None]]


class TaskIntake(Protocol):
    """Takes tasks and passes them to the executor, for the time of its context."""

    def cancel(self) -> None:
        """Cancel running tasks: the end of the context then waits for nothing else."""


class IntakeLimits(NamedTuple):
    """`group`: take only tasks of steps with this worker_group."""

    max_tasks: int
    group: str | None
    grace_s: float


class Transport(Protocol):
    """Open for as long as the worker runs."""

    name: str

    def registered(self, entry: WorkerRegistration) -> AbstractAsyncContextManager[None]:
        """Register the worker for the time of the block. Raises Unavailable where the service is not available yet."""

    def receiving(
        self, functions: Sequence[TaskFunction], handle: Handle, bounds: IntakeLimits
    ) -> AbstractAsyncContextManager[TaskIntake]:
        """Handle tasks of these functions for the time of the block.

        Its end takes no more, gives back tasks that have not begun, lets the others finish for `grace_s`, then cancels
        them and gives them back.
        """
