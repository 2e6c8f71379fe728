"""The protocol of both transports: directly through the broker (direct.py), and over HTTP (bridge.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from penstock.broker.live.progress import StepProgress
from penstock.broker.worker_messages import CancelledTask, TaskPayload, WorkerRegistration
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome


class StepStore(Protocol):
    """What is stored for a step and its run, and how often the task was delivered."""

    @property
    def deliveries(self) -> int: ...

    async def checkpoint(self, body: bytes) -> None: ...

    async def load_checkpoint(self) -> bytes | None: ...

    async def wait_signal(self, name: str) -> bytes: ...

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None: ...


class HeldTask(StepStore, Protocol):
    """One task that this worker holds, until it is reported or given back. Its methods wait while the service is
    unavailable."""

    async def begin(self) -> TaskPayload | None:
        """Report that the work begins. None: the task cannot be executed, its step has been failed."""

    async def answer(self, outcome: Outcome) -> None:
        """Report the outcome; returns when it is stored, and the task is no longer held."""

    async def discard(self, reason: str | None) -> None:
        """The execution was cancelled: nothing is reported, and the task is no longer held."""

    async def give_back(self, delay_s: float = 0.0) -> None:
        """Let another worker have it, after a while. If the service is unavailable, it is delivered again after its ack
        wait."""

    async def say_lines(self, lines: Sequence[bytes], number: int) -> None:
        """Store log lines, each the JSON of a line. `number` counts such calls: a repeat with the same one is stored
        once. Raises Conflict once the attempt is over, NotFound while the service does not know the execution, Full."""

    async def say_chunks(self, chunks: Sequence[bytes], dropped: int, number: int) -> None:
        """As `say_lines`, for chunks, each any JSON; `dropped`: so many are missing before them."""

    async def say_progress(self, said: StepProgress) -> None:
        """Show it, if the service is available now. Raises as `say_lines`, and Unavailable."""


Handle = Callable[[TaskFunction, HeldTask], Awaitable[None]]


class Executions(Protocol):
    """Carries out tasks (tasks/executor.py)."""

    async def handle(self, function: TaskFunction, held: HeldTask) -> None:
        """Execute the task and report its outcome."""

    def cancel(self, cancelled: CancelledTask) -> None:
        """Cancel an execution, if it is carried out here."""

    def executing(self) -> Sequence[TaskPayload]:
        """The tasks whose functions are running, without those that are cancelled."""


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
        self, functions: Sequence[TaskFunction], executions: Executions, bounds: IntakeLimits
    ) -> AbstractAsyncContextManager[TaskIntake]:
        """Have tasks of these functions executed for the time of the block, and cancelled when they are not wanted any
        more.

        Its end takes no more, gives back tasks that have not begun, lets the others finish for `grace_s`, then cancels
        them and gives them back.
        """
