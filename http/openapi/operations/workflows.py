"""Operations on definitions of workflows."""

from __future__ import annotations

from penstock.client import views
from penstock.config import limits
from penstock.http.intake.calls import CallResource
from penstock.http.messages import params
from penstock.http.openapi.definitions import array, described, ref
from penstock.http.openapi.operations.operation import Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import CALLS, KEY, MIN_SEQ
from penstock.http.resources import workflows

CALL_TIMEOUT = Parameter(
    "timeout_ms",
    {**described(params.CALL_MS), "default": limits.CALL_MS_DEFAULT},
    "How long the answer may wait for the run.",
    "100",
)
GREET = {"name": "greet", "steps": [{"id": "hello", "task": "hello", "timeout": "30s", "retries": 3}]}

WORKFLOWS_OPERATIONS: tuple[Operation, ...] = (
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
        parameters=(Parameter("version", described(params.VERSION), "This version of it; else the latest.", "1"),),
    ),
    Operation(
        "deleteWorkflow",
        "/workflows/{name}",
        workflows.WorkflowResource.on_delete,
        "Workflows",
        {200: Answer(views.Deleted)},
        refusals=(404, 409),
        parameters=(
            Parameter("force", described(params.FORCE), "Also while triggers or runs need it.", "false"),
            MIN_SEQ,
        ),
    ),
    Operation(
        "listVersions",
        "/workflows/{name}/versions",
        workflows.WorkflowVersionsResource.on_get,
        "Workflows",
        {200: Answer(list[views.VersionView])},
        refusals=(404,),
    ),
    Operation(
        "callWorkflow",
        "/workflows/{name}/call",
        CallResource.on_post,
        "Workflows",
        {200: Answer({}, headers=CALLS), 202: Answer(views.CalledRun, headers=CALLS)},
        refusals=(404, 502),
        parameters=(CALL_TIMEOUT, KEY),
        body=Body({}, "Ada", required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
    ),
)
