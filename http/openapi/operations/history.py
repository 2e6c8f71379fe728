"""Operations on recorded runs: compare two, the graph of one, one as a document, out and in."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.client.history import views
from penstock.config import limits
from penstock.engine.access.scopes import KeyScope
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.validation import parse
from penstock.http.history.diff import DiffResource
from penstock.http.history.export import ExportResource
from penstock.http.history.graph import GraphResource
from penstock.http.history.importing import ImportResource, ImportRun
from penstock.http.middleware.rights import About
from penstock.http.openapi.operations.operation import Answer, Body, Operation
from penstock.http.openapi.operations.parameters import BY_RUN, INSTANT, STARTS

_GREET = to_json(parse({"name": "greet", "steps": [{"id": "hello", "task": "greet"}]}))
EXPORTED: dict[str, Any] = {
    "run_id": "01a1fbcaa870711395b52e898c42ef36",
    "definition": orjson.loads(_GREET),
    "events": [
        {
            "seq": 1,
            "stored_at": INSTANT,
            "type": "workflow.started",
            "run_id": "01a1fbcaa870711395b52e898c42ef36",
            "timestamp": INSTANT,
            "payload": {"workflow": "greet", "version": "1", "digest": digest(_GREET), "input": "Ada"},
        },
        {
            "seq": 2,
            "stored_at": INSTANT,
            "type": "workflow.cancelled",
            "run_id": "01a1fbcaa870711395b52e898c42ef36",
            "timestamp": INSTANT,
        },
    ],
}

HISTORY_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "diffRuns",
        "/runs/{run_id}/diff/{other}",
        DiffResource.on_get,
        "Runs",
        {200: Answer(views.DiffView)},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "getGraph",
        "/runs/{run_id}/graph",
        GraphResource.on_get,
        "Runs",
        {200: Answer(views.GraphView)},
        refusals=(404,),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "exportRun",
        "/runs/{run_id}/export",
        ExportResource.on_get,
        "Runs",
        {200: Answer(views.ExportView)},
        refusals=(404, 413),
        scope=KeyScope.READ,
        about=About.RUN,
    ),
    Operation(
        "importRun",
        "/runs/import",
        ImportResource.on_post,
        "Runs",
        {201: Answer(views.ImportedRun, headers=STARTS)},
        refusals=(409,),
        body=Body(ImportRun, EXPORTED, bytes_max=limits.IMPORT_BYTES_MAX),
        leads={"getRun": BY_RUN, "getEvents": BY_RUN, "getGraph": BY_RUN},
        scope=KeyScope.ADMIN,
        about=About.SEVERAL,
    ),
)
