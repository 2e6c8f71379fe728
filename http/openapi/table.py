"""All operations of the HTTP API, from which its document is made. A route without a row, or a row without its route,
fails a test."""

from __future__ import annotations

from penstock.http.openapi.operations.bridge import BRIDGE_OPERATIONS
from penstock.http.openapi.operations.bulk import BULK_OPERATIONS
from penstock.http.openapi.operations.dead_letters import DEAD_LETTERS_OPERATIONS
from penstock.http.openapi.operations.operation import Access, Operation
from penstock.http.openapi.operations.runs import RUNS_OPERATIONS
from penstock.http.openapi.operations.service import SERVICE_OPERATIONS
from penstock.http.openapi.operations.triggers import TRIGGERS_OPERATIONS
from penstock.http.openapi.operations.workers import WORKERS_OPERATIONS
from penstock.http.openapi.operations.workflows import WORKFLOWS_OPERATIONS

OPERATIONS: tuple[Operation, ...] = (
    *WORKFLOWS_OPERATIONS,
    *RUNS_OPERATIONS,
    *BULK_OPERATIONS,
    *TRIGGERS_OPERATIONS,
    *DEAD_LETTERS_OPERATIONS,
    *WORKERS_OPERATIONS,
    *BRIDGE_OPERATIONS,
    *SERVICE_OPERATIONS,
)

WITHOUT_QUERY = frozenset(
    (method, one.path)
    for one in OPERATIONS
    if one.access is Access.API and not any(found.place == "query" for found in one.parameters)
    for method in (one.method.upper(), *(("HEAD",) if one.method == "get" else ()))
)
"""Methods and paths of the control plane that know no query parameter."""
