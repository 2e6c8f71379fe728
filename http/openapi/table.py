"""All operations of the HTTP API, from which its document is made. A route without a row, or a row without its route,
fails a test."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.http.access.audit_trail import Audited
from penstock.http.middleware.rights import Right, Rights
from penstock.http.openapi.operations.access import ACCESS_OPERATIONS
from penstock.http.openapi.operations.bridge import BRIDGE_OPERATIONS
from penstock.http.openapi.operations.bulk import BULK_OPERATIONS
from penstock.http.openapi.operations.dead_letters import DEAD_LETTERS_OPERATIONS
from penstock.http.openapi.operations.history import HISTORY_OPERATIONS
from penstock.http.openapi.operations.operating import OPERATING_OPERATIONS
from penstock.http.openapi.operations.operation import Access, Operation
from penstock.http.openapi.operations.reruns import RERUN_OPERATIONS
from penstock.http.openapi.operations.runs import RUNS_OPERATIONS
from penstock.http.openapi.operations.service import SERVICE_OPERATIONS
from penstock.http.openapi.operations.triggers import TRIGGERS_OPERATIONS
from penstock.http.openapi.operations.workers import WORKERS_OPERATIONS
from penstock.http.openapi.operations.workflows import WORKFLOWS_OPERATIONS

OPERATIONS: tuple[Operation, ...] = (
    *WORKFLOWS_OPERATIONS,
    *RUNS_OPERATIONS,
    *OPERATING_OPERATIONS,
    *HISTORY_OPERATIONS,
    *RERUN_OPERATIONS,
    *BULK_OPERATIONS,
    *TRIGGERS_OPERATIONS,
    *DEAD_LETTERS_OPERATIONS,
    *WORKERS_OPERATIONS,
    *BRIDGE_OPERATIONS,
    *ACCESS_OPERATIONS,
    *SERVICE_OPERATIONS,
)

BY_KEYS = frozenset({Access.API, Access.BRIDGE})
RIGHTS: Rights = {
    (method, one.path): Right(one.scope, one.about)
    for one in OPERATIONS
    if one.access in BY_KEYS
    for method in (one.method.upper(), *(("HEAD",) if one.method == "get" else ()))
}
"""What each operation that authenticates by a key needs of it."""

AUDITED: Mapping[tuple[str, str], Audited] = {
    (one.method.upper(), one.path): Audited(one.name, one.path.startswith("/keys"), one.access is Access.APPROVAL)
    for one in OPERATIONS
    if one.audited and one.method != "get" and one.access in (Access.API, Access.APPROVAL)
}
"""The changes that the audit log has."""

WITHOUT_QUERY = frozenset(
    (method, one.path)
    for one in OPERATIONS
    if one.access is Access.API and not any(found.place == "query" for found in one.parameters)
    for method in (one.method.upper(), *(("HEAD",) if one.method == "get" else ()))
)
"""Methods and paths of the control plane that know no query parameter."""
