"""Export over OTLP, for the life of a process: traces, metrics and logs by the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from penstock.actors.telemetry.telemetry import Numbers, hidden
from penstock.broker.store import Store
from penstock.config.settings import TelemetrySettings
from penstock.telemetry.meters import Sample

READ_S_MAX = 5.0  # of a loop that is busy


@asynccontextmanager
async def exporting(
    store: Store, numbers: Numbers, settings: TelemetrySettings, secrets: frozenset[str]
) -> AsyncIterator[None]:
    """Export what the process does in this block; what waits at its end is sent for a bounded time. Without
    `otlp_endpoint` it does nothing, and loads nothing."""
    if settings.otlp_endpoint is None:
        yield
        return
    # Loaded by who exports only: the SDK is an extra, and takes a quarter of a second.
    from penstock.telemetry.otlp.export import OtlpExport
    from penstock.telemetry.otlp.resource import OtlpTarget

    target = OtlpTarget(settings.otlp_endpoint, settings.otlp_headers)
    export = OtlpExport(
        target, numbers.process, numbers.version, store.meters, _reader(numbers), partial(hidden, secrets=secrets)
    )
    store.telemetry.otlp = export
    try:
        yield
    finally:
        store.telemetry.otlp = None
        await asyncio.to_thread(export.close)


def _reader(numbers: Numbers) -> Callable[[], list[Sample]]:
    """All current values, for any thread: they are read in the event loop, where they change."""
    loop = asyncio.get_running_loop()

    def answer(found: Future[list[Sample]]) -> None:
        own, *others = numbers.reports()
        found.set_result([*own.metrics, *(_of(one, other.process) for other in others for one in other.metrics)])

    def read() -> list[Sample]:
        found: Future[list[Sample]] = Future()
        loop.call_soon_threadsafe(answer, found)
        return found.result(READ_S_MAX)

    return read


def _of(sample: Sample, process: str) -> Sample:
    """A value of another process, which this one exports for it."""
    return replace(sample, labels={**sample.labels, "process": process})
