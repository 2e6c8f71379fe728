"""Calls that may go on for a while: of async functions, and of others that take a context.

Such a function that is not async is called in a thread of its own. The thread and the service take turns: while one
runs, the other waits. So what happens, and in which order, is the same each time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.config.process.background import start
from penstock.testing.memory.outcomes import outcome_awaited, outcome_of
from penstock.testing.memory.virtual_loop import VirtualLoop
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome
from penstock.worker.tasks.blocking import BlockingContext
from penstock.worker.tasks.context import Context, TaskFacts

Ended = Callable[[Outcome], None]


class AsyncCall:
    """Belongs to one delivery of a task."""

    def __init__(
        self,
        loop: VirtualLoop,
        function: TaskFunction,
        arguments: tuple[Any, ...],
        context: Context | None,
        ended: Ended,
    ) -> None:
        self._loop, self._function, self._ended = loop, function, ended
        self._context = context
        self._arguments = arguments if context is None else (*arguments, context)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Call the function, in the next run of the loop."""
        self._loop.call_soon(self._start)

    def cancel(self, reason: str) -> None:
        """The function gets a CancelledError where it awaits."""
        if self._context is not None:
            self._context.cancel(reason)
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = start(self._work(), name="task_function")

    async def _work(self) -> None:
        self._ended(await outcome_awaited(self._function.name, self._function.call(*self._arguments)))


class BlockingCall:
    """Belongs to one delivery of a task."""

    def __init__(
        self,
        loop: VirtualLoop,
        function: TaskFunction,
        arguments: tuple[Any, ...],
        context: Context | None,
        ended: Ended,
    ) -> None:
        assert context is not None, "others are called directly"
        self._loop, self._function, self._ended = loop, function, ended
        self._context = _TurnTakingContext(context, self._ask)
        self._arguments = (*arguments, self._context)
        self._function_turn, self._service_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"task {function.name}", daemon=True)
        self._question: Coroutine[Any, Any, Any] | None = None
        self._asked: asyncio.Task[Any] | None = None
        self._outcome: Outcome | None = None

    def begin(self) -> None:
        """Call the function, and return when it has ended, or waits for something."""
        self._thread.start()
        self._let_it_run()

    def cancel(self, reason: str) -> None:
        """What the function waits for raises TaskCancelled."""
        self._context.cancel(reason)
        if self._asked is not None:
            self._asked.cancel()

    def _run(self) -> None:
        self._function_turn.acquire()
        self._outcome = outcome_of(self._function.name, lambda: self._function.call(*self._arguments))
        self._service_turn.release()

    def _let_it_run(self) -> None:
        self._question = None
        self._function_turn.release()
        self._service_turn.acquire()
        if self._outcome is not None:
            self._ended(self._outcome)
        else:
            self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        assert self._question is not None, "the function waits for an answer"
        self._asked = start(self._question, name="task_question", expected=Exception)
        self._asked.add_done_callback(lambda _: self._let_it_run())

    def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        """Called by the function: the answer, when the service has it."""
        self._question = question
        self._service_turn.release()
        self._function_turn.acquire()
        asked, self._asked = self._asked, None
        assert asked is not None, "it was answered"
        if asked.cancelled():
            self._context.raise_if_cancelled()
        return asked.result()


class _TurnTakingContext(BlockingContext):
    """As its base, of a thread that takes turns with the service."""

    def __init__(self, context: Context, ask: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.__dict__ |= {name: value for name, value in vars(context).items() if name in _FACTS}
        self._context, self._asking = context, ask
        self.cancelled = _VirtualEvent(context, ask)

    def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        return self._asking(question)

    def cancel(self, reason: str) -> None:
        TaskFacts.cancel(self, reason)
        self._context.cancel(reason)
        self.cancelled.set()


class _VirtualEvent(threading.Event):
    """Set when the execution is cancelled; to wait for it takes time of the service."""

    def __init__(self, context: Context, ask: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__()
        self._context, self._ask = context, ask

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._ask(self._until_cancelled(timeout))
        return self.is_set()

    async def _until_cancelled(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._context.cancelled.wait()
        except TimeoutError:
            pass


_FACTS = frozenset(
    {"run_id", "step_id", "task_id", "attempt", "iteration", "item", "previous_error", "trace_parent", "deliveries"}
    | {"workflow", "metadata"}
)
