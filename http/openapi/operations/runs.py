"""Operations on one run, and on lists of runs and of approvals."""

from __future__ import annotations

from penstock.client import views
from penstock.client.recovery.views import PausedRun, RetriedRun
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.live.logs import LogsResource
from penstock.http.live.streams import StreamResource
from penstock.http.messages import params, run_filters
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import described, one_of
from penstock.http.openapi.operations.operation import JSON, STREAM, Access, Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import (
    BY_RUN,
    INSTANT,
    KEY,
    LAG,
    MIN_SEQ,
    OLDER,
    RUN_ID,
    SIGNAL_BODY,
    STARTS,
    UNCHANGED,
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
from penstock.http.resources.outputs import StepCheckpointResource, StepInputResource, StepOutputResource
from penstock.http.resources.retry import RetryRun, RunRetryResource

SELECTION = (
    Parameter("workflow", described(run_filters.RUNS["workflow"]), "Of this workflow only.", "greet"),
    Parameter("status", described(run_filters.RUNS["status"]), "In this status only.", "completed"),
    Parameter("after", described(run_filters.RUNS["after"]), "Created at this time or later.", INSTANT),
    Parameter("before", described(run_filters.RUNS["before"]), "Created at this time or earlier.", INSTANT),
    limit(run_filters.RUNS, limits.RUNS_LISTED_DEFAULT),
    Parameter(
        "cursor",
        described(run_filters.RUNS["cursor"]),
        "Continues an earlier list; out of its Link.",
        f"1795226395215318.{RUN_ID}",
    ),
    Parameter("prefix", described(run_filters.RUNS["prefix"]), "With an id that begins so.", RUN_ID[:12]),
    Parameter("parent", described(run_filters.RUNS["parent"]), "Started by a step of this run.", RUN_ID),
    Parameter("trigger", described(run_filters.RUNS["trigger"]), "Started by this trigger.", "hook"),
    Parameter("paused", described(run_filters.RUNS["paused"]), "Paused, or (false) not paused.", "true"),
    Parameter("label", described(run_filters.RUNS["label"]), "With this label; of several, with all.", "team:payments"),
    Parameter("q", described(run_filters.RUNS["q"]), "An id that begins so, or a label that contains it.", "paym"),
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
PAYLOAD_MAX = Parameter(
    "payload_max",
    described(params.PAYLOAD_MAX),
    "Of payloads with more bytes only the size is shown: `payload_bytes`, `input_bytes`, `output_bytes`.",
    "1024",
)
AFTER = number("after", params.SEQ, "Only events with a greater sequence.", "0")
SAID_AFTER = number("after", params.SEQ, "Only what was said after this place.", "0")
STEP = Parameter("step", described(params.STREAM["step"]), "Of this step, and of what is below it.", "hello")
RESUMED = Parameter(
    "Last-Event-ID", described(params.SEQ), "As after, and before it: where a stream goes on.", "25", place="header"
)
WAIT = number("wait_ms", params.WAIT_MS, "How long the answer may wait for the end of the run.", "100")
AT = Parameter("at", described(params.SEQ), "The run as it was when the event with this sequence was stored.", "25")
ACTION = Parameter("action", one_of(*params.ACTIONS), "The decision.", "approve", required=True)

RUNS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listRuns",
        "/runs",
        runs.RunsResource.on_get,
        "Runs",
        {200: Answer(list[views.RunView], paged=True, headers=LAG)},
        parameters=(*SELECTION, PAYLOAD_MAX, MIN_SEQ),
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "getRunStats",
        "/runs/stats",
        runs.RunStatsResource.on_get,
        "Runs",
        {200: Answer(views.RunStats, headers=(*LAG, "ETag")), 304: UNCHANGED},
        parameters=(
            *(one for one in SELECTION if one.name not in run_filters.OF_PAGES),
            Parameter("bucket", described(run_filters.STATS["bucket"]), "The width of a bucket; one without it.", "1h"),
            Parameter("by", described(run_filters.STATS["by"]), "Also the numbers of each one of these.", "workflow"),
            Parameter(
                "durations", described(run_filters.STATS["durations"]), "Also how long completed runs took.", "true"
            ),
            Parameter(
                "within_ms", described(run_filters.STATS["within_ms"]), "Count the newest runs for so long.", "100"
            ),
            MIN_SEQ,
            *OLDER,
        ),
        scope=KeyScope.READ,
        about=About.SEVERAL,
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
            "pauseRun": BY_RUN,
            "resumeRun": BY_RUN,
        },
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
        audited=False,
    ),
    Operation(
        "getRun",
        "/runs/{run_id}",
        runs.RunResource.on_get,
        "Runs",
        {200: Answer(views.RunView)},
        refusals=(404,),
        parameters=(WAIT, AT, PAYLOAD_MAX),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getStepOutput",
        "/runs/{run_id}/steps/{step_id}/output",
        StepOutputResource.on_get,
        "Runs",
        {200: Answer({})},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getStepInput",
        "/runs/{run_id}/steps/{step_id}/input",
        StepInputResource.on_get,
        "Runs",
        {200: Answer({})},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getStepCheckpoint",
        "/runs/{run_id}/steps/{step_id}/checkpoint",
        StepCheckpointResource.on_get,
        "Runs",
        {200: Answer(views.CheckpointView)},
        refusals=(404,),
        parameters=(PAYLOAD_MAX,),
        scope=KeyScope.READ,
        about=About.RUN,
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
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "cancelRun",
        "/runs/{run_id}/cancel",
        runs.CancellationResource.on_post,
        "Runs",
        {200: Answer(views.CancelledRun)},
        refusals=(404, 409, 500),
        body=Body(runs.CancelRun, {"reason": "not needed"}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "pauseRun",
        "/runs/{run_id}/pause",
        runs.PauseResource.on_post,
        "Runs",
        {200: Answer(PausedRun)},
        refusals=(404, 409, 500),
        scope=KeyScope.OPERATE,
        about=About.RUN,
        body=Body(runs.PauseRun, {"children": True}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
    ),
    Operation(
        "resumeRun",
        "/runs/{run_id}/resume",
        runs.ResumeResource.on_post,
        "Runs",
        {200: Answer(PausedRun)},
        refusals=(404, 409, 500),
        scope=KeyScope.OPERATE,
        about=About.RUN,
        body=Body(runs.PauseRun, {"children": True}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
    ),
    Operation(
        "retryRun",
        "/runs/{run_id}/retry",
        RunRetryResource.on_post,
        "Runs",
        {200: Answer(RetriedRun)},
        refusals=(404, 409),
        body=Body(RetryRun, {"mode": "replay"}, required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "getEvents",
        "/runs/{run_id}/events",
        EventsResource.on_get,
        "Runs",
        {200: Answer(list[views.EventView], media=(JSON, STREAM), paged=True)},
        refusals=(404,),
        parameters=(
            AFTER,
            Parameter("limit", described(params.EVENTS["limit"]), "How many at most; only for pages.", "500"),
            PAYLOAD_MAX,
            RESUMED,
        ),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getLogs",
        "/runs/{run_id}/logs",
        LogsResource.on_get,
        "Runs",
        {200: Answer(list[views.LogLineView], media=(JSON, STREAM), paged=True)},
        refusals=(404,),
        parameters=(
            STEP,
            Parameter("level", described(params.LOGS["level"]), "This level and worse.", "warning"),
            Parameter("q", described(params.LOGS["q"]), "With this text in it, in any case.", "charged"),
            limit(params.LOGS, limits.LOGS_LISTED_DEFAULT),
            SAID_AFTER,
            RESUMED,
        ),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getStream",
        "/runs/{run_id}/stream",
        StreamResource.on_get,
        "Runs",
        {200: Answer(media=(STREAM,))},
        refusals=(404,),
        parameters=(STEP, SAID_AFTER, RESUMED),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getScheduled",
        "/runs/{run_id}/scheduled",
        scheduled.ScheduledRunResource.on_get,
        "Runs",
        {200: Answer(views.ScheduledRun)},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "unschedule",
        "/runs/{run_id}/scheduled",
        scheduled.ScheduledRunResource.on_delete,
        "Runs",
        {200: Answer(views.Unscheduled)},
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "sendSignal",
        "/runs/{run_id}/signal/{name}",
        runs.SignalResource.on_post,
        "Runs",
        {200: Answer(views.Sent)},
        refusals=(404, 500),
        body=SIGNAL_BODY,
        scope=KeyScope.OPERATE,
        about=About.RUN,
        audited=False,
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
        scope=KeyScope.READ,
        about=About.SEVERAL,
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
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
)
