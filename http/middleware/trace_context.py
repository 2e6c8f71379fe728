"""Under which span of the caller a request begins what it begins."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.config.process.traces import set_caller_trace
from penstock.telemetry.tracing import trace_parent


class TraceContext:
    """Part of the application where telemetry is exported. A header that is none is ignored, as W3C Trace Context
    wants."""

    async def process_request(self, req: Request, resp: Response) -> None:
        parent = trace_parent(req.get_header("traceparent"))
        set_caller_trace(None if parent is None else parent.text)
