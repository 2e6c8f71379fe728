"""Operations on workers and the queues of their tasks."""

from __future__ import annotations

from penstock.client import views
from penstock.engine.access.scopes import KeyScope
from penstock.http.openapi.operations.operation import Answer, Operation
from penstock.http.resources.tasks import TasksResource
from penstock.http.resources.workers import WorkersResource

WORKERS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listTasks",
        "/tasks",
        TasksResource.on_get,
        "Workers",
        {200: Answer(list[views.TaskQueueView])},
        scope=KeyScope.READ,
    ),
    Operation(
        "listWorkers",
        "/workers",
        WorkersResource.on_get,
        "Workers",
        {200: Answer(list[views.WorkerView])},
        scope=KeyScope.READ,
    ),
)
