"""The requests about workflows as values, in the way of requests.py."""

from __future__ import annotations

from functools import partial

from msgspec import Raw

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, get, with_query
from penstock.client.responses import decode
from penstock.client.views import Deleted, Registered, VersionView, WorkflowSummary
from penstock.engine.definition.definitions import WorkflowDef, from_json


def register(definition: bytes) -> ApiRequest[Registered]:
    """Register a workflow, or replace the one of its name; `definition` is its JSON.

    Raises Invalid that names every problem of the definition.
    """
    return ApiRequest("POST", "/workflows", partial(decode, kind=Registered), definition, changes_nothing=True)


def workflows() -> ApiRequest[list[WorkflowDef]]:
    """The latest definition of every name."""
    return ApiRequest("GET", "/workflows", lambda got: [from_json(bytes(body)) for body in decode(got, list[Raw])])


def workflow_summaries() -> ApiRequest[list[WorkflowSummary]]:
    """The latest definition of every name in short, and which tasks nobody serves."""
    return get("/workflows?summary=true", list[WorkflowSummary])


def workflow(name: str, version: str | None = None) -> ApiRequest[WorkflowDef]:
    """The latest definition of a name, or that of a version. Raises NotFound."""
    url = with_query(f"/workflows/{segment(name)}", {"version": version})
    return ApiRequest("GET", url, partial(decode, kind=WorkflowDef))


def versions(name: str) -> ApiRequest[list[VersionView]]:
    """The versions of a workflow, newest first. Raises NotFound."""
    return get(f"/workflows/{segment(name)}/versions", list[VersionView])


def definition_schema() -> ApiRequest[bytes]:
    """The JSON Schema of definitions, as JSON: for editors, and for programs that check definitions by themselves."""
    return ApiRequest("GET", "/schemas/definition.json", lambda got: got.content)


def delete_workflow(name: str, *, force: bool = False) -> ApiRequest[Deleted]:
    """Delete a workflow with all its versions; its runs keep their definitions.

    Raises NotFound; Conflict that names the triggers and runs that need it, without `force`.
    """
    url = with_query(f"/workflows/{segment(name)}", {"force": "true" if force else None})
    return ApiRequest("DELETE", url, partial(decode, kind=Deleted))
