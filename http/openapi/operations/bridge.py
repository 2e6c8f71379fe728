"""Operations of workers over HTTP."""

from __future__ import annotations

from penstock.broker.worker_protocol.bridge_messages import (
    ConnectWorker,
    Exchanged,
    ExchangeTasks,
    PolledTask,
    PollTasks,
    ResolveTask,
)
from penstock.engine.access.scopes import KeyScope
from penstock.http.bridge.routes import (
    ConnectResource,
    ExchangeResource,
    PollResource,
    Resolved,
    ResolveResource,
    RunSignalResource,
    SentSignal,
)
from penstock.http.messages import params
from penstock.http.openapi.operations.operation import BYTES, JSON, STREAM, Access, Answer, Body, Operation
from penstock.http.openapi.operations.parameters import RUN_ID, SIGNAL_BODY, number

TIMEOUT = number("timeout_ms", params.TIMEOUT_MS, "How long the answer may wait for the signal.", "100")

BRIDGE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "connectWorker",
        "/v1/workers/connect",
        ConnectResource.on_post,
        "Worker bridge",
        {200: Answer(media=(STREAM,))},
        access=Access.BRIDGE,
        body=Body(ConnectWorker, {"worker_id": "w1", "task_types": ["hello"], "max_tasks": 1}),
        scope=KeyScope.OPERATE,
    ),
    Operation(
        "pollTasks",
        "/v1/tasks/poll",
        PollResource.on_post,
        "Worker bridge",
        {200: Answer(list[PolledTask])},
        access=Access.BRIDGE,
        body=Body(PollTasks, {"task_types": ["hello"], "max_tasks": 1, "timeout_ms": 100}),
        scope=KeyScope.OPERATE,
    ),
    Operation(
        "exchangeTasks",
        "/v1/tasks/exchange",
        ExchangeResource.on_post,
        "Worker bridge",
        {200: Answer(Exchanged)},
        access=Access.BRIDGE,
        body=Body(
            ExchangeTasks,
            {
                "worker_id": "w1",
                "resolve": [
                    {"task_id": f"{RUN_ID}.hello", "action": "complete", "output": {"greeting": "Hello, Ada!"}}
                ],
                "poll": {"task_types": ["hello"], "max_tasks": 1, "timeout_ms": 100},
            },
        ),
        scope=KeyScope.OPERATE,
    ),
    Operation(
        "resolveTask",
        "/v1/tasks/{task_id}/resolve",
        ResolveResource.on_post,
        "Worker bridge",
        {200: Answer(Resolved)},
        access=Access.BRIDGE,
        refusals=(404, 409),
        body=Body(ResolveTask, {"action": "complete", "output": {"greeting": "Hello, Ada!"}}),
        scope=KeyScope.OPERATE,
    ),
    Operation(
        "awaitSignal",
        "/v1/runs/{run_id}/signals/{name}",
        RunSignalResource.on_get,
        "Worker bridge",
        {200: Answer(media=(JSON, BYTES)), 204: Answer(media=())},
        access=Access.BRIDGE,
        refusals=(404,),
        parameters=(TIMEOUT,),
        scope=KeyScope.OPERATE,
    ),
    Operation(
        "sendSignalAsWorker",
        "/v1/runs/{run_id}/signals/{name}",
        RunSignalResource.on_post,
        "Worker bridge",
        {200: Answer(SentSignal)},
        access=Access.BRIDGE,
        refusals=(404,),
        body=SIGNAL_BODY,
        scope=KeyScope.OPERATE,
    ),
)
