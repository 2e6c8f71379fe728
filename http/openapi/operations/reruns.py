"""Operations on one step of a run, and reruns from a step."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.client.recovery import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.middleware.rights import About
from penstock.http.openapi.operations.operation import Answer, Body, Operation
from penstock.http.openapi.operations.parameters import BY_RUN, INSTANT, KEY, LAG, MIN_SEQ, STARTS
from penstock.http.recovery import pausing, pruning, rerun, steps

KEY_OF_ONE = replace(KEY, description="The same key and run give the same new run, for ever.")
KEY_OF_MANY = replace(
    KEY,
    description="The same key and workflow give the same new runs, whatever matches by now; another filter: 409.",
)

RERUN_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "rerunRun",
        "/runs/{run_id}/rerun",
        rerun.RunRerunResource.on_post,
        "Runs",
        {201: Answer(views.RepeatedRun, headers=STARTS)},
        refusals=(404, 409),
        parameters=(KEY_OF_ONE,),
        body=Body(rerun.RerunOne, {"input": "Ada"}, required=False),
        leads={"getRun": BY_RUN, "getEvents": BY_RUN, "cancelRun": BY_RUN},
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "retryStep",
        "/runs/{run_id}/steps/{step_id}/retry",
        steps.StepRetryResource.on_post,
        "Runs",
        {200: Answer(views.RetriedStep)},
        refusals=(404, 409, 500),
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "skipStep",
        "/runs/{run_id}/steps/{step_id}/skip",
        steps.StepSkipResource.on_post,
        "Runs",
        {200: Answer(views.OverriddenStep)},
        refusals=(404, 409, 500),
        body=Body(steps.SkipStep, {"output": {"paid": True}}, required=False, bytes_max=limits.BODY_BYTES_MAX),
        scope=KeyScope.OPERATE,
        about=About.RUN,
    ),
    Operation(
        "pauseRuns",
        "/runs/pause",
        pausing.BulkPauseResource.on_post,
        "Bulk",
        {200: Answer(views.BulkPaused, headers=LAG)},
        parameters=(MIN_SEQ,),
        body=Body(pausing.PauseRuns, {"workflow_id": "greet", "status": "running", "dry_run": True}),
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
    ),
    Operation(
        "resumeRuns",
        "/runs/resume",
        pausing.BulkResumeResource.on_post,
        "Bulk",
        {200: Answer(views.BulkResumed, headers=LAG)},
        parameters=(MIN_SEQ,),
        body=Body(pausing.PauseRuns, {"workflow_id": "greet", "before": INSTANT, "dry_run": True}),
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
    ),
    Operation(
        "pruneRuns",
        "/runs/prune",
        pruning.PruneResource.on_post,
        "Bulk",
        {200: Answer(views.BulkPruned, headers=LAG)},
        parameters=(MIN_SEQ,),
        body=Body(pruning.PruneRuns, {"workflow_id": "greet", "ended_before": INSTANT, "dry_run": True}),
        about=About.SEVERAL,
    ),
    Operation(
        "rerunRuns",
        "/runs/rerun",
        rerun.BulkRerunResource.on_post,
        "Bulk",
        {200: Answer(views.BulkRerun, headers=LAG)},
        refusals=(409,),
        parameters=(KEY_OF_MANY, MIN_SEQ),
        body=Body(rerun.RerunMany, {"workflow_id": "greet", "status": "failed", "after": INSTANT, "dry_run": True}),
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
    ),
)
