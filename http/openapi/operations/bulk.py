"""Operations on many runs in one request."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.client import views
from penstock.client.recovery.views import BulkRetried
from penstock.engine.access.scopes import KeyScope
from penstock.http.middleware.rights import About
from penstock.http.openapi.operations.operation import Answer, Body, Operation
from penstock.http.openapi.operations.parameters import INSTANT, KEY, LAG, MIN_SEQ, STARTS
from penstock.http.resources import bulk

KEY_OF_MANY = replace(
    KEY, description="The same key and workflow give the same runs; with another number of inputs: 409."
)
KEY_OF_RERUN = replace(
    KEY, description="For mode rerun: the same key and workflow give the same runs, whatever matches by now."
)

BULK_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "startRuns",
        "/runs/bulk",
        bulk.BulkRunsResource.on_post,
        "Bulk",
        {201: Answer(views.BulkStarted, headers=STARTS)},
        refusals=(404, 409),
        parameters=(KEY_OF_MANY,),
        body=Body(bulk.StartRuns, {"workflow_id": "greet", "inputs": ["Ada", "Grace"]}),
        leads={"getRun": {"run_id": "$response.body#/run_ids/0"}},
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
        audited=False,
    ),
    Operation(
        "cancelRuns",
        "/runs/cancel",
        bulk.BulkCancelResource.on_post,
        "Bulk",
        {200: Answer(views.BulkCancelled, headers=LAG)},
        parameters=(MIN_SEQ,),
        body=Body(bulk.CancelRuns, {"workflow_id": "greet", "status": "pending", "before": INSTANT, "dry_run": True}),
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
    ),
    Operation(
        "retryRuns",
        "/runs/retry",
        bulk.BulkRetryResource.on_post,
        "Bulk",
        {200: Answer(BulkRetried, headers=LAG)},
        refusals=(409,),
        parameters=(KEY_OF_RERUN, MIN_SEQ),
        body=Body(
            bulk.RetryRuns, {"workflow_id": "greet", "mode": "replay", "after": "2026-11-20T12:00:00Z", "dry_run": True}
        ),
        scope=KeyScope.OPERATE,
        about=About.SEVERAL,
    ),
)
