"""A process's own telemetry: metrics on request and every 10 s, warnings and errors, spans of its runs.

It is published in portions of bounded size; what is more than the bounds is dropped and counted.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import NoReturn
from uuid import uuid4

from penstock.actors.telemetry.relay import Relay
from penstock.broker.store import Store
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.keys import KEYS
from penstock.config.limits import TELEMETRY_METRICS_S
from penstock.config.process.background import FAILURES, restarting
from penstock.config.settings import Settings, value_of
from penstock.engine.times import rfc3339
from penstock.telemetry.meters import Meters, Sample
from penstock.telemetry.warnings import WARNINGS, Field

TICK_S = 0.5
LOGS_PER_TICK_MAX = 25
SPANS_PER_TICK_MAX = 2_000
SPANS_AT_ONCE = 100  # before the event loop runs other tasks
SUPERVISOR = "supervisor"
# Errors of publishing telemetry are not published: each would cause the next one.
NOT_SENT = frozenset({"broker_error"})
HIDDEN = "(hidden)"
SECRET_FIELD = re.compile(r"token|password|passwd|secret|authorization|credential|signature|api_?key", re.IGNORECASE)
URL_PASSWORD = re.compile(r"://[^/@\s]*@")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Numbers:
    """The metrics of this process; with a `relay`, those of its supervisor, too."""

    def __init__(self, process: str, meters: Meters, relay: Relay | None = None) -> None:
        self.process, self.relay, self._meters = process, relay, meters
        self._host, self._life, self.version = socket.gethostname(), uuid4().hex, version("penstock")
        _read_process(meters)

    def reports(self) -> list[ProcessReport]:
        """The current metrics of each process."""
        own = self._report(self.process, os.getpid(), self._life, self._meters.samples())
        if self.relay is None:
            return [own]
        samples = [
            Sample("penstock_restarts_total", count, {"child": child}) for child, count in self.relay.restarts().items()
        ]
        return [own, self._report(SUPERVISOR, os.getppid(), f"{self._life}-{SUPERVISOR}", samples)]

    def _report(self, process: str, pid: int, life: str, samples: list[Sample]) -> ProcessReport:
        return ProcessReport(process, self._host, pid, life, rfc3339(time.time()), samples, self.version)


class Reporter:
    """Publishes the telemetry of its process to the stream TELEMETRY. Owned by a process, from `reporting`."""

    def __init__(self, store: Store, numbers: Numbers, secrets: frozenset[str] = frozenset()) -> None:
        self._telemetry, self._broker = store.telemetry, store.broker
        self._numbers, self._secrets = numbers, secrets
        self._reported_at = time.monotonic()

    async def run(self) -> NoReturn:
        """Publish log and spans every TICK_S, metrics every TELEMETRY_METRICS_S, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.write()
            if time.monotonic() - self._reported_at >= TELEMETRY_METRICS_S:
                await self.write_metrics()

    async def write(self) -> None:
        """Publish one portion of log and spans. While the broker is away, a bounded number of them waits."""
        if not self._broker.connected:
            return
        await self._write_log(self._numbers.process, WARNINGS.take(LOGS_PER_TICK_MAX))
        if self._numbers.relay is not None:
            await self._write_log(SUPERVISOR, self._numbers.relay.taken())
        await self._write_spans()

    async def write_metrics(self) -> None:
        """Publish the current metrics."""
        self._reported_at = time.monotonic()
        for report in self._numbers.reports():
            await self._telemetry.send_metrics(report)

    async def _write_log(self, process: str, events: list[dict[str, Field]]) -> None:
        for event in events:
            if event.get("event") not in NOT_SENT:
                await self._telemetry.send_log(process, scrubbed(event, self._secrets))

    async def _write_spans(self) -> None:
        spans = self._telemetry.spans
        for number in range(min(len(spans), SPANS_PER_TICK_MAX)):
            await self._telemetry.send_span(spans.popleft())
            if number % SPANS_AT_ONCE == SPANS_AT_ONCE - 1:
                await asyncio.sleep(0)


@asynccontextmanager
async def reporting(store: Store, numbers: Numbers, secrets: frozenset[str]) -> AsyncIterator[Reporter]:
    """Publish this process's telemetry for the time of the block; the last portion is published when it ends."""
    reporter = Reporter(store, numbers, secrets)
    await store.telemetry.answer(numbers.reports)
    try:
        async with restarting(reporter.run, name="telemetry"):
            yield reporter
    finally:
        await reporter.write()


def secret_values(settings: Settings) -> frozenset[str]:
    """The values of secret settings: no telemetry may contain them in any field."""
    values = [value_of(settings, key) for key in KEYS.values() if key.secret and key.name != "otlp_headers"]
    values += [text for _, text in settings.telemetry.otlp_headers]
    return frozenset(str(value) for value in values if value)


def scrubbed(event: dict[str, Field], secrets: Iterable[str]) -> dict[str, Field]:
    """The event with secrets hidden: fields with a secret's name, known secret values, passwords in URLs."""
    return {name: _scrubbed(name, value, secrets) for name, value in event.items()}


def _scrubbed(name: str, value: Field, secrets: Iterable[str]) -> Field:
    if value is not None and SECRET_FIELD.search(name):
        return HIDDEN
    return hidden(name, value, secrets) if isinstance(value, str) else value


def hidden(name: str, value: str, secrets: Iterable[str]) -> str:
    """The text of a field with secrets hidden."""
    if SECRET_FIELD.search(name):
        return HIDDEN
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    return URL_PASSWORD.sub("://***@", value)


def _read_process(meters: Meters) -> None:
    started = time.time() - _age_s()
    meters.readings("penstock_log_events_total", lambda: {(level,): count for level, count in WARNINGS.levels.items()})
    meters.readings("penstock_background_failures_total", lambda: {(work,): count for work, count in FAILURES.items()})
    meters.reading("penstock_telemetry_dropped_total", lambda: WARNINGS.dropped, "log")
    meters.reading("penstock_process_start_time_seconds", lambda: started)
    meters.reading("penstock_process_cpu_seconds_total", _cpu_s)
    meters.reading("penstock_process_resident_memory_bytes", _memory_bytes)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_bytes() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def _age_s() -> float:
    """The age of this process, in s. The system has its start in clock ticks since boot."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
