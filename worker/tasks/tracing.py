"""The span of an execution in the worker: current while the function runs, in its thread or task.

The task says under which span it is (`trace_parent`); a task without one costs nothing. What the function begins
becomes part of the trace by itself: spans of instrumented libraries, http requests, runs that it starts. Where the
worker's process has set up OpenTelemetry, spans go there; else to `otlp_endpoint`; else they only carry the ids on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker.worker_messages import TaskPayload
from penstock.telemetry.tracing import TraceParent, trace_parent
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Pause

SCOPE = "penstock.worker"


def traced(function: TaskFunction, task: TaskPayload) -> TaskFunction:
    """The function with a span of its own around each call; the same function where there is nothing to trace, or
    nothing to trace with."""
    parent = trace_parent(task.trace_parent)
    if parent is None or not _can_trace():
        return function
    execution = _Execution(function, task, parent)
    return function._replace(call=execution.awaited if function.is_async else execution.called)


class _Execution:
    def __init__(self, function: TaskFunction, task: TaskPayload, parent: TraceParent) -> None:
        self._function, self._task, self._parent = function, task, parent

    def called(self, *arguments: Any) -> Any:
        with self._span():
            return self._function.call(*arguments)

    async def awaited(self, *arguments: Any) -> Any:
        with self._span():
            return await self._function.call(*arguments)

    @contextmanager
    def _span(self) -> Iterator[None]:
        from opentelemetry import trace

        from penstock.telemetry.otlp.remote import remote

        with trace.get_tracer(SCOPE).start_as_current_span(
            f"task {self._function.name}",
            trace.set_span_in_context(remote(self._parent)),
            kind=trace.SpanKind.CONSUMER,
            attributes=_about(self._function, self._task),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (Pause, asyncio.CancelledError):
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
                raise


def _about(function: TaskFunction, task: TaskPayload) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "messaging.system": "penstock",
        "messaging.operation.type": "process",
        "messaging.destination.name": function.name,
        "messaging.message.id": task.task_id,
        "penstock.run_id": task.run_id,
        "penstock.workflow": task.workflow_name,
        "penstock.step_id": task.step_id,
        "penstock.task": function.name,
        "penstock.attempt": task.attempt,
        "penstock.iteration": task.iteration,
    }
    return about if task.item is None else {**about, "penstock.item": task.item}


def _can_trace() -> bool:
    """Whether OpenTelemetry is installed. It is loaded by the first task that is traced."""
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True
