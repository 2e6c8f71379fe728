"""Operations on definitions of workflows."""

from __future__ import annotations

from penstock.client import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.http.intake.calls import CallResource
from penstock.http.messages import params, run_filters
from penstock.http.middleware.rights import About
from penstock.http.openapi.definitions import Schema, array, described, ref
from penstock.http.openapi.operations.operation import Answer, Body, Operation, Parameter
from penstock.http.openapi.operations.parameters import CALLS, KEY, MIN_SEQ, OLDER, UNCHANGED
from penstock.http.resources import workflows

CALL_TIMEOUT = Parameter(
    "timeout_ms",
    {**described(params.CALL_MS), "default": limits.CALL_MS_DEFAULT},
    "How long the answer may wait for the run.",
    "100",
)
CALL_LABELS = Parameter("label", described(run_filters.CALL["label"]), "A label of the run.", "team:payments")
IN_SHORT: Schema = {
    "type": "object",
    "required": ["name", "version", "steps"],
    "additionalProperties": False,
    "description": "With summary=true. `unserved` is how many of its task types no worker serves now, `unserved_task` "
    "the first of them.",
    "properties": {
        "name": ref("Name"),
        "version": {"type": "string"},
        "steps": {"type": "integer", "description": "How many it has."},
        "description": {"type": "string", "description": "Its beginning, 100 characters."},
        "unserved": {"type": "integer"},
        "unserved_task": {"type": "string"},
    },
}
GREET = {"name": "greet", "steps": [{"id": "hello", "task": "hello", "timeout": "30s", "retries": 3}]}

WORKFLOWS_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "listWorkflows",
        "/workflows",
        workflows.WorkflowsResource.on_get,
        "Workflows",
        {200: Answer(array({"anyOf": [ref("WorkflowDef"), IN_SHORT]}), headers=("ETag",)), 304: UNCHANGED},
        parameters=(
            Parameter("summary", described(params.SUMMARY), "Each in short, without its steps.", "true"),
            *OLDER,
        ),
        scope=KeyScope.READ,
        about=About.SEVERAL,
    ),
    Operation(
        "registerWorkflow",
        "/workflows",
        workflows.WorkflowsResource.on_post,
        "Workflows",
        {201: Answer(views.Registered)},
        body=Body(ref("WorkflowDef"), GREET),
        leads={"getWorkflow": {"name": "$response.body#/name"}},
        scope=KeyScope.ADMIN,
        about=About.SEVERAL,
    ),
    Operation(
        "getWorkflow",
        "/workflows/{name}",
        workflows.WorkflowResource.on_get,
        "Workflows",
        {200: Answer(ref("WorkflowDef"))},
        refusals=(404,),
        parameters=(Parameter("version", described(params.VERSION), "This version of it; else the latest.", "1"),),
        scope=KeyScope.READ,
        about=About.WORKFLOW,
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
        scope=KeyScope.ADMIN,
        about=About.WORKFLOW,
    ),
    Operation(
        "listVersions",
        "/workflows/{name}/versions",
        workflows.WorkflowVersionsResource.on_get,
        "Workflows",
        {200: Answer(list[views.VersionView])},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.WORKFLOW,
    ),
    Operation(
        "callWorkflow",
        "/workflows/{name}/call",
        CallResource.on_post,
        "Workflows",
        {200: Answer({}, headers=CALLS), 202: Answer(views.CalledRun, headers=CALLS)},
        refusals=(404, 502),
        parameters=(CALL_TIMEOUT, CALL_LABELS, KEY),
        body=Body({}, "Ada", required=False, bytes_max=limits.PAYLOAD_BYTES_MAX),
        scope=KeyScope.OPERATE,
        about=About.WORKFLOW,
        audited=False,
    ),
)
