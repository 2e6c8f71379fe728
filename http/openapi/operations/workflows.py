"""Operations on definitions of workflows."""

from __future__ import annotations

from penstock.client import views
from penstock.http.openapi.definitions import array, ref
from penstock.http.openapi.operations.operation import Answer, Body, Operation
from penstock.http.resources import workflows

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
    ),
)
