"""Counts requests and their duration by route, for /metrics."""

from __future__ import annotations

import time

from falcon import COMBINED_METHODS
from falcon.asgi import Request, Response

from penstock.telemetry.meters import Meters
from penstock.telemetry.metrics import OTHER

NO_ROUTE = "none"  # the path does not exist, or the request was refused before it was routed


class Counting:
    """The outermost middleware of every application."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._requests = meters.counter("penstock_http_requests_total")

    async def process_request(self, req: Request, resp: Response) -> None:
        req.context.began = time.perf_counter()

    async def process_response(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        route = req.uri_template or NO_ROUTE
        method = req.method if req.method in COMBINED_METHODS else OTHER
        self._requests.add(route, method, str(resp.status_code))
        self._meters.histogram("penstock_http_request_seconds", route, method).observe(
            time.perf_counter() - req.context.began
        )
