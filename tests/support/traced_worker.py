"""A worker process for tests of traces: `python -m tests.support.traced_worker nats|bridge`. Its functions tell which
span is current, and begin what is to become part of the trace."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal, cast

from opentelemetry import trace

from penstock.client import AsyncClient, Client
from penstock.worker import Context, Worker


def current() -> dict[str, str]:
    found = trace.get_current_span().get_span_context()
    return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}


def blocking(value: Any) -> Any:
    with Client(os.environ["SERVICE_URL"]) as client:
        begun = client.start("begun")
    return {**current(), "begun": begun.run_id}


async def waiting(value: Any, ctx: Context) -> Any:
    with trace.get_tracer("users").start_as_current_span("of the user"):
        async with AsyncClient(os.environ["SERVICE_URL"]) as client:
            begun = await client.start("begun")
    return {**current(), "begun": begun.run_id, "given": ctx.trace_parent}


def broken(value: Any) -> Any:
    raise ValueError("it is broken")


def main() -> None:
    worker = Worker(max_tasks=10, transport=cast(Literal["nats", "bridge"], sys.argv[1]))
    worker.task("traced.blocking")(blocking)
    worker.task("traced.waiting")(waiting)
    worker.task("traced.broken")(broken)
    worker.run()


if __name__ == "__main__":
    main()
