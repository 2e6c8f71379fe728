"""Operations on one run, and on lists of runs and of approvals."""

from __future__ import annotations

from penstock.client import views
from penstock.config import limits
from penstock.http.messages import params
from penstock.http.openapi.definitions import described, one_of
from penstock.http.openapi.operations.operation import JSON, STREAM, Access, Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import (
    BY_RUN,
    INSTANT,
    KEY,
    LAG,
    MIN_SEQ,
    RUN_ID,
    SIGNAL_BODY,
    STARTS,
    limit,
    number,
)
from penstock.http.resources import runs, scheduled
from penstock.http.resources.approvals import (
    ApprovalResource,
    ApprovalsResource,
    Choice,
    OperatorApprovalResource,
    Opinion,
)
from penstock.http.resources.events import EventsResource
from penstock.http.resources.map_items import MapItemsResource
from penstock.http.resources.outputs import StepOutputResource
from penstock.http.resources.retry import RetryRun, RunRetryResource

SELECTION = (
    Parameter("workflow", described(params.RUNS["workflow"]), "Of this workflow only.", "greet"),
    Parameter("status", described(params.RUNS["status"]), "In this status only.", "completed"),
    Parameter("after", described(params.RUNS["after"]), "Created at this time or later.", INSTANT),
    Parameter("before", described(params.RUNS["before"]), "Created at this time or earlier.", INSTANT),
    limit(params.RUNS, limits.RUNS_LISTED_DEFAULT),
    Parameter(
        "cursor",
        described(params.RUNS["cursor"]),
        "Continues an earlier list; out of its Link.",
        f"1795226395215318.{RUN_ID}",
    ),
    Parameter("prefix", described(params.RUNS["prefix"]), "With an id that begins so.", RUN_ID[:12]),
    Parameter("parent", described(params.RUNS["parent"]), "Started by a step of this run.", RUN_ID),
)
APPROVALS = (
    Parameter("workflow", described(params.APPROVALS["workflow"]), "Of this workflow only.", "greet"),
    limit(params.APPROVALS, limits.APPROVALS_LISTED_MAX),
    Parameter(
        "cursor",
        described(params.APPROVALS["cursor"]),
        "Continues an earlier list; out of its Link.",
        f"{RUN_ID}.review",
    ),
)
AFTER = number("after", params.SEQ, "Only events with a greater sequence.", "0")
RESUMED = Parameter(
    "Last-Event-ID", described(params.SEQ), "As after, and before it: where a stream goes on.", "25", place="header"
)
WAIT = number("wait_ms", params.WAIT_MS, "How long the answer may wait for the end of the run.", "100")
ACTION = Parameter("action", one_of(*params.ACTIONS), "The decision.", "approve", required=True)

RUNS_OPERATIONS: tuple[Operation, ...] = (
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
        refusals=(404,),
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
        "getMapItems",
        "/runs/{run_id}/steps/{step_id}/items",
        MapItemsResource.on_get,
        "Runs",
        {200: Answer(list[views.MapItemView], paged=True)},
        refusals=(404,),
        parameters=(
            Parameter("status", described(params.ITEMS["status"]), "In this status only.", "failed"),
            limit(params.ITEMS, params.ITEMS_LISTED_DEFAULT),
            Parameter("cursor", described(params.ITEMS["cursor"]), "The first element; out of a Link.", "100"),
        ),
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
)
