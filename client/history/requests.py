"""The requests about recorded runs as values, in the way of requests.py."""

from __future__ import annotations

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, get, post, with_query
from penstock.client.history.views import DiffView, GraphView, ImportedRun
from penstock.client.views import RunView


def run_at(run_id: str, seq: int) -> ApiRequest[RunView]:
    """The run as it was when the event with this sequence was stored. Raises NotFound, also before its first event,
    Invalid for a sequence that the log has not reached."""
    return get(with_query(f"/runs/{segment(run_id)}", {"at": str(seq)}), RunView)


def diff(run_id: str, other: str) -> ApiRequest[DiffView]:
    """Two runs, compared step by step; they may be of different workflows. Raises NotFound."""
    return get(f"/runs/{segment(run_id)}/diff/{segment(other)}", DiffView)


def graph(run_id: str) -> ApiRequest[GraphView]:
    """The graph of a run's steps, with their statuses. Raises NotFound."""
    return get(f"/runs/{segment(run_id)}/graph", GraphView)


def import_run(document: bytes) -> ApiRequest[ImportedRun]:
    """Store a run as `export` of another service gives it: a record, which nothing changes. Raises Invalid with all
    that is wrong, Conflict when there is a run of this id, TooLarge for nearly 8 MiB."""
    return post("/runs/import", ImportedRun, document)


def export(run_id: str) -> ApiRequest[bytes]:
    """The run with its definition and all its events, as JSON. Raises NotFound, TooLarge."""
    return ApiRequest("GET", f"/runs/{segment(run_id)}/export", lambda got: got.content)
