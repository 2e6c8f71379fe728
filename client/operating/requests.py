"""The requests about why runs wait and what is wrong with the service as values, in the way of requests.py."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, PagedRequest, get, label_texts, page_limit, truth, with_query
from penstock.client.operating.views import (
    BrokerView,
    DoctorView,
    ExplanationView,
    RunSummary,
    SettingView,
    TelemetryStatus,
)
from penstock.config.limits import SUMMARIES_LISTED_DEFAULT


def explain(run_id: str) -> ApiRequest[ExplanationView]:
    """Why a run does not go on: each reason with a sentence for people. Raises NotFound."""
    return get(f"/runs/{segment(run_id)}/explain", ExplanationView)


def summaries(
    *,
    workflow: str | None = None,
    status: str | None = None,
    after: str | None = None,
    before: str | None = None,
    prefix: str | None = None,
    parent: str | None = None,
    trigger: str | None = None,
    labels: Mapping[str, str] | None = None,
    text: str | None = None,
    paused: bool | None = None,
    held_up: bool = False,
    explain: bool = False,
    limit: int | None = None,
) -> PagedRequest[RunSummary]:
    """The runs that `runs` gives, each in short. With `explain`, also why they do not go on; with `held_up`, only those
    that somebody has to act on."""
    query = {
        "workflow": workflow,
        "status": status,
        "after": after,
        "before": before,
        "prefix": prefix,
        "parent": parent,
        "trigger": trigger,
        "label": label_texts(labels),
        "q": text,
        "paused": truth(paused),
        "held_up": truth(held_up or None),
        "explain": truth(explain or None),
        "limit": page_limit(limit, SUMMARIES_LISTED_DEFAULT),
    }
    return PagedRequest(with_query("/runs/summaries", query), RunSummary, limit)


def doctor() -> ApiRequest[DoctorView]:
    """What is wrong with the service, with a remedy for each. Takes half a second."""
    return get("/doctor", DoctorView)


def broker() -> ApiRequest[BrokerView]:
    """Where everything is stored: nodes, streams with their leaders, storage."""
    return get("/broker", BrokerView)


def settings() -> ApiRequest[list[SettingView]]:
    """The effective settings of the service, and where each came from."""
    return get("/settings", list[SettingView])


def metrics() -> ApiRequest[str]:
    """The metrics of the whole service in Prometheus' text format."""
    return ApiRequest("GET", "/metrics", lambda got: got.text)


def telemetry() -> ApiRequest[TelemetryStatus]:
    """How full the stream of telemetry is; all 0 while the broker cannot be asked."""
    return get("/health/telemetry", TelemetryStatus)
