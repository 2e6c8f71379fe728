"""What a worker does for workflows that are written in Python: it registers them, and serves their functions with the
types that these name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.config.logging import get_logger
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, Invalid
from penstock.worker.functions import TaskFunction, task_function
from penstock.worker.tasks.failures import NonRetriable

if TYPE_CHECKING:
    from penstock.authoring.tasks import Task
    from penstock.authoring.workflow import Workflow

log = get_logger()


def functions_of(workflows: Iterable[Workflow[Any]]) -> dict[str, TaskFunction]:
    """The functions of all tasks that the workflows bring along. Raises Conflict for two of the same name."""
    tasks: dict[str, Task] = {}
    for task in (task for flow in workflows for task in flow.tasks.values()):
        if tasks.setdefault(task.name, task).function is not task.function:
            raise Conflict(f"two workflows have different functions for task type {quoted(task.name)}")
    return {name: _typed(task) for name, task in tasks.items()}


async def register(workflows: Iterable[Workflow[Any]], url: str, token: str | None) -> None:
    """Register the definitions, or replace those of their names. Raises Invalid with every problem, Unavailable without
    a service, Denied without a token that it accepts."""
    from penstock.client import AsyncClient  # loaded by who registers only

    async with AsyncClient(url, token) as client:
        for flow in workflows:
            found = await client.register(flow.to_json())
            log.info("workflow_registered", workflow=found.name)


def _typed(task: Task) -> TaskFunction:
    """The function, which is given its input as the type that it names."""
    from penstock.authoring.codecs import Codec  # loaded by who has workflows only

    found, codec = task_function(task.name, task.function), Codec(task.input)
    if not found.takes or codec.type is Any:
        return found

    def decoded(value: Any) -> Any:
        try:
            return codec.decode(value)
        except Invalid as error:
            raise NonRetriable(
                f"the input of task {quoted(task.name)} is wrong: {'; '.join(error.problems)}"
            ) from error

    return found._replace(call=_awaited(task.function, decoded) if found.is_async else _called(task.function, decoded))


def _called(function: Callable[..., Any], decoded: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(value: Any, *context: Any) -> Any:
        return function(decoded(value), *context)

    return call


def _awaited(function: Callable[..., Any], decoded: Callable[[Any], Any]) -> Callable[..., Any]:
    async def call(value: Any, *context: Any) -> Any:
        return await function(decoded(value), *context)

    return call
