"""The requests for log lines and chunks, as values."""

from __future__ import annotations

import httpx2

from penstock.client.address import segment
from penstock.client.api_request import PagedRequest, with_query
from penstock.client.views import LogLineView


def logs(
    run_id: str, *, step: str | None = None, level: str | None = None, text: str | None = None, after: int = 0
) -> PagedRequest[LogLineView]:
    """The log lines of a run, as far as they go now; pages are fetched as they are needed.

    `step` takes what is below a step, too; `level` is debug, info, warning, error or critical, and takes what is worse;
    `text` is searched for in any case, `after` is the `seq` of a line. Raises NotFound, Invalid.
    """
    return PagedRequest(logs_url(run_id, step, level, text, after), LogLineView)


def logs_url(run_id: str, step: str | None, level: str | None, text: str | None, after: int) -> httpx2.URL:
    query = {"step": step, "level": level, "q": text, "after": str(after) if after else None}
    return with_query(f"/runs/{segment(run_id)}/logs", query)


def chunks_url(run_id: str, step: str | None) -> httpx2.URL:
    return with_query(f"/runs/{segment(run_id)}/stream", {"step": step})
