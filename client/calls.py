"""Calling a workflow: the request, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import httpx2
from msgspec import Struct

from penstock.client.address import segment
from penstock.client.api_request import ApiRequest, keyed, label_texts, with_query
from penstock.client.responses import check, problem
from penstock.client.views import OUTCOME
from penstock.config.limits import CALL_MS_DEFAULT
from penstock.engine.run.state import RUN_ENDED


class CallResult(Struct, frozen=True):
    """The answer to a call, with the id of its run.

    `outcome` is completed (`body` is the run's output as JSON), responded (a step answered with this `status`,
    `content_type` and `body`), failed or cancelled (`body` is the error as text), or running: it did not answer in time
    and goes on.
    """

    run_id: str
    outcome: str
    status: int
    content_type: str
    body: bytes


def call(
    workflow: str,
    input: bytes = b"null",  # noqa: A002
    *,
    timeout_ms: int = CALL_MS_DEFAULT,
    idempotency_key: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> ApiRequest[CallResult]:
    """Start a run and wait for its answer, `timeout_ms` at most (300,000 is the most); `input` is JSON, at most 1 MiB.

    Raises NotFound for an unknown workflow, Invalid for an input that does not fit its schema; a run that fails raises
    nothing. With an `idempotency_key` it is safe to repeat. The run gets the `labels`.
    """
    url = _url(workflow, timeout_ms, tuple(label_texts(labels) or ()))
    return ApiRequest(
        "POST", url, _result, input, keyed(idempotency_key), check_call, timeout_ms / 1000, takes_key=True
    )


@lru_cache  # of one workflow, most calls differ in their input alone
def _url(workflow: str, timeout_ms: int, labels: tuple[str, ...]) -> httpx2.URL:
    return with_query(f"/workflows/{segment(workflow)}/call", {"timeout_ms": str(timeout_ms), "label": labels or None})


def check_call(response: httpx2.Response) -> None:
    """Raise the error that a response stands for, unless it is the answer of a run."""
    if OUTCOME not in response.headers:
        check(response)


def _result(response: httpx2.Response) -> CallResult:
    headers = response.headers
    run_id = headers.get("Location", "").rpartition("/")[2]
    body, kind, outcome = response.content, headers.get("Content-Type", ""), headers.get(OUTCOME, "")
    if outcome in RUN_ENDED and not response.is_success:
        body, kind = "\n".join(problem(response).problems).encode(), "text/plain; charset=utf-8"
    return CallResult(run_id, outcome, response.status_code, kind, body)
