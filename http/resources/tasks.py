"""/tasks: the tasks that wait for workers, by type, and the number of workers for each. For people; nothing depends on
it."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.broker.streams.task_queues import task_queues
from penstock.client.views import TaskQueueView
from penstock.http.backend import Backend
from penstock.http.messages import responses
from penstock.http.resources.workers import serving


class TasksResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The task queues, those with most tasks first."""
        queues = await task_queues(self._backend.store.broker)
        workers = await serving(self._backend.store)
        shown = (
            TaskQueueView(one.task, one.waiting, one.in_hand, workers[one.task, one.group], one.group, one.oldest_at)
            for one in queues
        )
        responses.ok(resp, list(shown))
