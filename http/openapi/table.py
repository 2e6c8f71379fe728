"""The operations of the HTTP API, one row each: what the document of the API is made of, beside the structs themselves.

A route without a row, or a row without its route, fails a test. What follows from a row is not in it: 400 for a request
that can be wrong, 401 by its access, 413 for a body, 503 wherever the broker is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.worker_protocol.bridge_messages import (
    ConnectWorker,
    Exchanged,
    ExchangeTasks,
    PolledTask,
    PollTasks,
    ResolveTask,
)
from penstock.client import views
from penstock.config import limits
from penstock.engine.run.state import RunStatus
from penstock.http.bridge.routes import (
    ConnectResource,
    ExchangeResource,
    PollResource,
    Resolved,
    ResolveResource,
    RunSignalResource,
    SentSignal,
)
from penstock.http.messages import params, responses
from penstock.http.messages.params import ACTIONS, KEY_CHARS_MAX, SEQ_MAX
from penstock.http.openapi.definitions import Schema, array, one_of, ref, whole
from penstock.http.openapi.reference import Document, Reference
from penstock.http.resources import bulk, dead_letters, runs, scheduled, triggers, workflows
from penstock.http.resources.approvals import (
    ApprovalResource,
    ApprovalsResource,
    Choice,
    OperatorApprovalResource,
    Opinion,
)
from penstock.http.resources.events import EventsResource
from penstock.http.resources.outputs import StepOutputResource
from penstock.http.resources.retry import RetryRun, RunRetryResource
from penstock.http.resources.tasks import TasksResource
from penstock.http.resources.webhooks import Accepted, Challenge, WebhookResource
from penstock.http.resources.workers import WorkersResource
from penstock.http.system import health
from penstock.http.system.metrics import Metrics

JSON, TEXT, STREAM, BYTES, HTML = (
    "application/json",
    "text/plain",
    "text/event-stream",
    "application/octet-stream",
    "text/html",
)
RUN_ID = "01a1fbd4e22e73c2b60e9754e7b7a067"
INSTANT = "2026-11-21T12:00:00Z"


class Access(StrEnum):
    """What a request must show. The words are the names of the document's security schemes."""

    OPEN = "open"
    API = "apiToken"
    BRIDGE = "bridgeToken"
    APPROVAL = "approvalToken"
    SIGNATURE = "signature"


class Parameter(Struct, frozen=True):
    """Of the query, or a header. `example` is a value as it is written in a request."""

    name: str
    schema: Schema
    description: str
    example: str
    required: bool = False
    place: str = "query"


class Body(Struct, frozen=True):
    """`shape` is a struct, a schema, or None for bytes of any kind; `example` is its JSON."""

    shape: Any
    example: object
    required: bool = True
    bytes_max: int = limits.BODY_BYTES_MAX


class Answer(Struct, frozen=True):
    """Of success. `shape` is a struct, an array of one, a schema, or None for what is no JSON. `paged`: a Link may lead
    on. `headers` are always there."""

    shape: Any = None
    media: tuple[str, ...] = (JSON,)
    paged: bool = False
    headers: tuple[str, ...] = ()


class Operation(Struct, frozen=True):
    """`refusals` are the statuses that do not follow from the rest; `leads` says which operations take what an answer
    holds."""

    name: str
    path: str
    responder: Callable[..., Any]
    tag: str
    answers: Mapping[int, Answer]
    access: Access = Access.API
    refusals: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    leads: Mapping[str, Mapping[str, str]] = {}
    needs_broker: bool = True

    @property
    def method(self) -> str:
        return self.responder.__name__.removeprefix("on_")


def _limit(most: int, default: int) -> Parameter:
    return Parameter("limit", whole(1, most, default=default), "How many at most.", "10")


def _moment(name: str, which: str) -> Parameter:
    return Parameter(name, {"type": "string", "format": "date-time"}, f"Created at this time or {which}.", INSTANT)


# Path parameters, by what stands before them and their name.
PATHS: Mapping[tuple[str, str], tuple[Schema, str, str]] = {
    ("workflows", "name"): (ref("Name"), "The workflow's name.", "greet"),
    ("runs", "run_id"): (ref("RunId"), "The run's id.", RUN_ID),
    ("signal", "name"): (ref("Name"), "The signal's name.", "paid"),
    ("signals", "name"): (ref("Name"), "The signal's name.", "paid"),
    ("approvals", "run_id"): (ref("RunId"), "The run's id.", RUN_ID),
    ("", "step_id"): (ref("Name"), "The step that waits.", "review"),
    ("approval", "step_id"): (ref("Name"), "The step that waits.", "review"),
    ("steps", "step_id"): (ref("Name"), "The step's id.", "hello"),
    ("triggers", "name"): (ref("Name"), "The trigger's name.", "nightly"),
    ("webhooks", "name"): (ref("Name"), "The webhook trigger's name.", "push"),
    ("dead-letters", "seq"): (whole(1, SEQ_MAX), "The dead letter's sequence.", "17"),
    ("tasks", "task_id"): (
        {"type": "string", "pattern": r"^[0-9a-f]{32}\.[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*$"},
        "The task's id: run id, dot, step id.",
        f"{RUN_ID}.hello",
    ),
}

GREET = {"name": "greet", "steps": [{"id": "hello", "task": "hello", "timeout": "30s", "retries": 3}]}
NIGHTLY = {
    "name": "nightly",
    "workflow": "greet",
    "cron": {"expression": "0 3 * * *", "timezone": "Europe/Berlin"},
    "input": "Ada",
}
BY_RUN = {"run_id": "$response.body#/run_id"}

SELECTION = (
    Parameter("workflow", ref("Name"), "Of this workflow only.", "greet"),
    Parameter("status", one_of(*RunStatus), "In this status only.", "completed"),
    _moment("after", "later"),
    _moment("before", "earlier"),
    _limit(limits.RUNS_LISTED_MAX, limits.RUNS_LISTED_DEFAULT),
    Parameter(
        "cursor", {"type": "string"}, "Continues an earlier list; out of its Link.", f"1795226395215318.{RUN_ID}"
    ),
    Parameter("prefix", {"type": "string", "pattern": "^[0-9a-f]{8,32}$"}, "With an id that begins so.", RUN_ID[:12]),
)
LETTERS = (
    Parameter("run", ref("RunId"), "Of this run only.", RUN_ID),
    Parameter("task", ref("Name"), "Of this task type only.", "hello"),
    _limit(limits.DEAD_LETTERS_LISTED_MAX, limits.DEAD_LETTERS_LISTED_DEFAULT),
    Parameter("cursor", whole(1, SEQ_MAX), "Continues an earlier list; out of its Link.", "17"),
)
APPROVALS = (
    Parameter("workflow", ref("Name"), "Of this workflow only.", "greet"),
    _limit(limits.APPROVALS_LISTED_MAX, limits.APPROVALS_LISTED_MAX),
    Parameter("cursor", {"type": "string"}, "Continues an earlier list; out of its Link.", f"{RUN_ID}.review"),
)
KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    "The same key and workflow give the same run, for ever.",
    "order-17",
    place="header",
)
KEY_OF_MANY = replace(
    KEY, description="The same key and workflow give the same runs; with another number of inputs: 409."
)
KEY_OF_RERUN = replace(
    KEY, description="For mode rerun: the same key and workflow give the same runs, whatever matches by now."
)
MIN_SEQ = Parameter(
    params.MIN_SEQ,
    whole(0, SEQ_MAX),
    "Wait for this sequence of the log, at most 1 s; as Penstock-Seq told it.",
    "25",
    place="header",
)
LAG = (responses.INDEX_AS_OF, responses.INDEX_LAG)
STARTS = (responses.SEQ,)
AFTER = Parameter("after", whole(0, SEQ_MAX, default=0), "Only events with a greater sequence.", "0")
RESUMED = Parameter(
    "Last-Event-ID", whole(0, SEQ_MAX), "As after, and before it: where a stream goes on.", "25", place="header"
)
WAIT = Parameter(
    "wait_ms", whole(0, limits.WAIT_MS_MAX, default=0), "How long the answer may wait for the end of the run.", "100"
)
TIMEOUT = Parameter(
    "timeout_ms", whole(0, limits.POLL_MS_MAX, default=0), "How long the answer may wait for the signal.", "100"
)
ACTION = Parameter("action", one_of(*ACTIONS), "The decision.", "approve", required=True)

SIGNAL_BODY = Body(None, {"amount": 12}, required=False, bytes_max=limits.SIGNAL_BYTES_MAX)
PAYLOAD_BODY = Body({}, "Ada", required=False, bytes_max=limits.PAYLOAD_BYTES_MAX)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listWorkflows",
        "/workflows",
        workflows.WorkflowsResource.on_get,
        "Workflows",
        {200: Answer(array(ref("WorkflowDef")))},
    ),
    Operation(
        "registerWorkflow",
        "/workflows",
        workflows.WorkflowsResource.on_post,
        "Workflows",
        {201: Answer(views.Registered)},
        body=Body(ref("WorkflowDef"), GREET),
        leads={"getWorkflow": {"name": "$response.body#/name"}},
    ),
    Operation(
        "getWorkflow",
        "/workflows/{name}",
        workflows.WorkflowResource.on_get,
        "Workflows",
        {200: Answer(ref("WorkflowDef"))},
        refusals=(404,),
    ),
    Operation(
        "listRuns",
        "/runs",
        runs.RunsResource.on_get,
        "Runs",
        {200: Answer(list[views.RunView], paged=True, headers=LAG)},
        parameters=(*SELECTION, MIN_SEQ),
    ),
    Operation(
        "startRun",
        "/runs",
        runs.RunsResource.on_post,
        "Runs",
        {201: Answer(views.StartedRun, headers=STARTS)},
        parameters=(KEY,),
        body=Body(runs.StartRun, {"workflow": "greet", "input": "Ada"}),
        leads={
            "getRun": BY_RUN,
            "getEvents": BY_RUN,
            "getScheduled": BY_RUN,
            "unschedule": BY_RUN,
            "sendSignal": BY_RUN,
            "cancelRun": BY_RUN,
        },
    ),
    Operation(
        "startRuns",
        "/runs/bulk",
        bulk.BulkRunsResource.on_post,
        "Bulk",
        {201: Answer(views.BulkStarted, headers=STARTS)},
        refusals=(409,),
        parameters=(KEY_OF_MANY,),
        body=Body(bulk.StartRuns, {"workflow_id": "greet", "inputs": ["Ada", "Grace"]}),
        leads={"getRun": {"run_id": "$response.body#/run_ids/0"}},
    ),
    Operation(
        "cancelRuns",
        "/runs/cancel",
        bulk.BulkCancelResource.on_post,
        "Bulk",
        {200: Answer(views.BulkCancelled, headers=LAG)},
        parameters=(MIN_SEQ,),
        body=Body(bulk.CancelRuns, {"workflow_id": "greet", "status": "pending", "before": INSTANT, "dry_run": True}),
    ),
    Operation(
        "retryRuns",
        "/runs/retry",
        bulk.BulkRetryResource.on_post,
        "Bulk",
        {200: Answer(views.BulkRetried, headers=LAG)},
        refusals=(409,),
        parameters=(KEY_OF_RERUN, MIN_SEQ),
        body=Body(
            bulk.RetryRuns, {"workflow_id": "greet", "mode": "replay", "after": "2026-11-20T12:00:00Z", "dry_run": True}
        ),
    ),
    Operation(
        "getRun",
        "/runs/{run_id}",
        runs.RunResource.on_get,
        "Runs",
        {200: Answer(views.RunView)},
        refusals=(404,),
        parameters=(WAIT,),
    ),
    Operation(
        "getStepOutput",
        "/runs/{run_id}/steps/{step_id}/output",
        StepOutputResource.on_get,
        "Runs",
        {200: Answer({})},
        refusals=(404,),
    ),
    Operation(
        "cancelRun",
        "/runs/{run_id}/cancel",
        runs.CancellationResource.on_post,
        "Runs",
        {200: Answer(views.CancelledRun)},
        refusals=(404, 409, 500),
        body=Body(runs.CancelRun, {"reason": "not needed"}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
    ),
    Operation(
        "retryRun",
        "/runs/{run_id}/retry",
        RunRetryResource.on_post,
        "Runs",
        {200: Answer(views.RetriedRun)},
        refusals=(404, 409),
        body=Body(RetryRun, {"mode": "replay"}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
    ),
    Operation(
        "getEvents",
        "/runs/{run_id}/events",
        EventsResource.on_get,
        "Runs",
        {200: Answer(list[views.EventView], media=(JSON, STREAM), paged=True)},
        refusals=(404,),
        parameters=(AFTER, RESUMED),
    ),
    Operation(
        "getScheduled",
        "/runs/{run_id}/scheduled",
        scheduled.ScheduledRunResource.on_get,
        "Runs",
        {200: Answer(views.ScheduledRun)},
        refusals=(404,),
    ),
    Operation(
        "unschedule",
        "/runs/{run_id}/scheduled",
        scheduled.ScheduledRunResource.on_delete,
        "Runs",
        {200: Answer(views.Unscheduled)},
    ),
    Operation(
        "sendSignal",
        "/runs/{run_id}/signal/{name}",
        runs.SignalResource.on_post,
        "Runs",
        {200: Answer(views.Sent)},
        refusals=(404, 500),
        body=SIGNAL_BODY,
    ),
    Operation(
        "decide",
        "/runs/{run_id}/approval/{step_id}",
        ApprovalResource.on_post,
        "Runs",
        {200: Answer(views.DecidedApproval)},
        access=Access.APPROVAL,
        refusals=(404, 409),
        parameters=(ACTION,),
        body=Body(
            Opinion, {"comment": "fine", "approved_by": "Ada"}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX
        ),
    ),
    Operation(
        "listApprovals",
        "/approvals",
        ApprovalsResource.on_get,
        "Runs",
        {200: Answer(list[views.ApprovalView], paged=True)},
        parameters=APPROVALS,
    ),
    Operation(
        "decideAsOperator",
        "/approvals/{run_id}/{step_id}",
        OperatorApprovalResource.on_post,
        "Runs",
        {200: Answer(views.DecidedApproval)},
        refusals=(404, 409),
        body=Body(
            Choice, {"action": "approve", "comment": "fine", "approved_by": "Ada"}, bytes_max=limits.PAYLOAD_BYTES_MAX
        ),
    ),
    Operation(
        "listTriggers",
        "/triggers",
        triggers.TriggersResource.on_get,
        "Triggers",
        {200: Answer(list[views.TriggerView])},
    ),
    Operation(
        "createTrigger",
        "/triggers",
        triggers.TriggersResource.on_post,
        "Triggers",
        {201: Answer(views.TriggerView)},
        refusals=(409,),
        body=Body(ref("TriggerDocument"), NIGHTLY),
        leads={name: {"name": "$response.body#/name"} for name in ("getTrigger", "fireTrigger", "testTrigger")},
    ),
    Operation(
        "getTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_get,
        "Triggers",
        {200: Answer(views.TriggerView)},
        refusals=(404,),
    ),
    Operation(
        "putTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_put,
        "Triggers",
        {200: Answer(views.TriggerView)},
        refusals=(409,),
        body=Body(ref("NamedTriggerDocument"), {"workflow": "greet", "webhook": {"secret": "keep it"}}),
    ),
    Operation(
        "deleteTrigger",
        "/triggers/{name}",
        triggers.TriggerResource.on_delete,
        "Triggers",
        {200: Answer(views.Deleted)},
        refusals=(404,),
    ),
    Operation(
        "fireTrigger",
        "/triggers/{name}/fire",
        triggers.TriggerFireResource.on_post,
        "Triggers",
        {201: Answer(views.FiredRun)},
        refusals=(404,),
        body=PAYLOAD_BODY,
    ),
    Operation(
        "testTrigger",
        "/triggers/{name}/test",
        triggers.TriggerTrialResource.on_post,
        "Triggers",
        {200: Answer(views.TrialView)},
        refusals=(404,),
        body=PAYLOAD_BODY,
    ),
    Operation(
        "receiveWebhook",
        "/v1/webhooks/{name}",
        WebhookResource.on_post,
        "Triggers",
        {202: Answer(Accepted), 200: Answer(Challenge)},
        access=Access.SIGNATURE,
        refusals=(404,),
        body=Body({}, {"ref": "refs/heads/main"}, bytes_max=limits.WEBHOOK_BYTES_MAX),
    ),
    Operation(
        "listDeadLetters",
        "/dead-letters",
        dead_letters.DeadLettersResource.on_get,
        "Dead letters",
        {200: Answer(list[views.DeadLetterView], paged=True)},
        parameters=LETTERS,
    ),
    Operation(
        "getDeadLetter",
        "/dead-letters/{seq}",
        dead_letters.DeadLetterResource.on_get,
        "Dead letters",
        {200: Answer(views.DeadLetterView)},
        refusals=(404,),
    ),
    Operation(
        "discardDeadLetter",
        "/dead-letters/{seq}",
        dead_letters.DeadLetterResource.on_delete,
        "Dead letters",
        {200: Answer(views.Discarded)},
        refusals=(404,),
    ),
    Operation(
        "replayDeadLetter",
        "/dead-letters/{seq}/replay",
        dead_letters.DeadLetterReplayResource.on_post,
        "Dead letters",
        {200: Answer(views.Replayed)},
        refusals=(404, 409),
    ),
    Operation("listTasks", "/tasks", TasksResource.on_get, "Workers", {200: Answer(list[views.TaskQueueView])}),
    Operation("listWorkers", "/workers", WorkersResource.on_get, "Workers", {200: Answer(list[views.WorkerView])}),
    Operation(
        "connectWorker",
        "/v1/workers/connect",
        ConnectResource.on_post,
        "Worker bridge",
        {200: Answer(media=(STREAM,))},
        access=Access.BRIDGE,
        body=Body(ConnectWorker, {"worker_id": "w1", "task_types": ["hello"], "max_tasks": 1}),
    ),
    Operation(
        "pollTasks",
        "/v1/tasks/poll",
        PollResource.on_post,
        "Worker bridge",
        {200: Answer(list[PolledTask])},
        access=Access.BRIDGE,
        body=Body(PollTasks, {"task_types": ["hello"], "max_tasks": 1, "timeout_ms": 100}),
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
    ),
    Operation(
        "resolveTask",
        "/v1/tasks/{task_id}/resolve",
        ResolveResource.on_post,
        "Worker bridge",
        {200: Answer(Resolved)},
        access=Access.BRIDGE,
        refusals=(404,),
        body=Body(ResolveTask, {"action": "complete", "output": {"greeting": "Hello, Ada!"}}),
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
    ),
    Operation(
        "getHealth", "/health", health.Health.on_get, "Service", {200: Answer(health.HealthStatus)}, access=Access.OPEN
    ),
    Operation(
        "getReady", "/ready", health.Ready.on_get, "Service", {200: Answer(health.HealthStatus)}, access=Access.OPEN
    ),
    Operation(
        "getTelemetryHealth",
        "/health/telemetry",
        health.TelemetryHealth.on_get,
        "Service",
        {200: Answer(health.TelemetryStatus)},
        access=Access.OPEN,
        needs_broker=False,
    ),
    Operation("getMetrics", "/metrics", Metrics.on_get, "Service", {200: Answer(media=(TEXT,))}, needs_broker=False),
    Operation(
        "getDocument",
        "/openapi.json",
        Document.on_get,
        "Service",
        {200: Answer({"type": "object"}), 304: Answer(media=())},
        access=Access.OPEN,
        needs_broker=False,
    ),
    Operation(
        "getReference",
        "/docs",
        Reference.on_get,
        "Service",
        {200: Answer(media=(HTML,)), 304: Answer(media=())},
        access=Access.OPEN,
        needs_broker=False,
    ),
)

WITHOUT_QUERY = frozenset(
    (method, one.path)
    for one in OPERATIONS
    if one.access is Access.API and not any(found.place == "query" for found in one.parameters)
    for method in (one.method.upper(), *(("HEAD",) if one.method == "get" else ()))
)
"""Methods and paths of the control plane that know no query parameter."""
