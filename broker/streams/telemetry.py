"""The TELEMETRY stream, and the requests for metrics that every process answers.

Telemetry is advisory, so nothing here waits for the broker. Messages are sent without an answer, and dropped when the
connection is lost or has much else to write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.headers import MSG_ID
from penstock.config.process.background import start
from penstock.engine.errors import PenstockError
from penstock.telemetry.meters import Meters, Sample
from penstock.telemetry.tracing import Span

if TYPE_CHECKING:  # it is loaded where something is exported only
    from penstock.telemetry.otlp.export import OtlpExport

BEHIND_BYTES = 1 << 20  # unwritten bytes of the connection above which telemetry is dropped
SPANS_WAITING_MAX = 10_000
STATE_S_MAX = 2.0


class ProcessReport(Struct, frozen=True):
    """All metrics of one process at one time. `life` distinguishes it from an earlier process of the same name; `at` is
    RFC 3339, `version` that of penstock (empty: a version that did not say)."""

    process: str
    host: str
    pid: int
    life: str
    at: str
    metrics: list[Sample]
    version: str = ""


class StreamState(Struct, frozen=True):
    """`percent` is how much of the stream's limit is used; 0 without a limit."""

    messages: int = 0
    bytes: int = 0
    percent: float = 0.0


_ENCODER = msgspec.json.Encoder()
_REPORTS = msgspec.json.Decoder(list[ProcessReport])


class Telemetry:
    """One for each Store. `spans` wait here until the process writes them; when too many wait, further ones are only
    counted. `otlp` is where the process exports its telemetry to; None: nowhere."""

    def __init__(self, broker: Broker, meters: Meters) -> None:
        self._broker = broker
        self.otlp: OtlpExport | None = None
        self.spans: deque[Span] = deque()
        self._dropped = meters.counter("penstock_telemetry_dropped_total")
        self._known: frozenset[str] = frozenset()  # the lives of processes that answered the last request

    def offer(self, span: Span) -> None:
        """Queue the span for writing; it is dropped when too many wait."""
        if len(self.spans) < SPANS_WAITING_MAX:
            self.spans.append(span)
        else:
            self._dropped.add("span")

    async def send_metrics(self, report: ProcessReport) -> None:
        await self._send(names.telemetry_subject("metrics", report.process), report, "metrics")

    async def send_log(self, process: str, event: dict[str, str | int | float | bool | None]) -> None:
        await self._send(names.telemetry_subject("log", process), event, "log")

    async def send_span(self, span: Span) -> None:
        """A repeat within 5 s is stored once."""
        await self._send(
            names.telemetry_subject("span", span.trace_id),
            span,
            "span",
            {MSG_ID: f"{span.trace_id}.{span.span_id}"},
        )

    async def answer(self, reports: Callable[[], list[ProcessReport]]) -> None:
        """Answer requests for reports with these, as long as the connection lives."""

        async def reply(msg: Msg) -> None:
            await self._broker.publish(msg.reply, _ENCODER.encode(reports()))

        await self._broker.subscribe(names.METRICS_PING, reply)

    async def ask(self, timeout_s: float) -> list[ProcessReport]:
        """The reports of all processes that answer in this time. Raises Unavailable when not connected."""
        answers = await self._broker.ask_all(names.METRICS_PING, lambda found: False, timeout_s)
        return [report for answer in answers for report in _reports(answer)]

    async def ask_known(self, timeout_s: float) -> list[ProcessReport]:
        """As `ask`, but it returns as soon as all processes have answered that did so the last time. A process that is
        new is among them if it is as fast as the others, or else from the next time on."""
        found, known = dict[str, ProcessReport](), self._known
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def enough(answers: list[bytes]) -> bool:
            found.update((report.life, report) for report in _reports(answers[-1]))
            if known and known <= found.keys() and not complete.done():
                complete.set_result(None)
            return False

        async def collect() -> None:
            await self._broker.ask_all(names.METRICS_PING, enough, timeout_s)
            self._known = frozenset(found)

        collecting = start(collect(), name="telemetry_reports", expected=PenstockError)
        done, _ = await asyncio.wait({collecting, complete}, return_when=asyncio.FIRST_COMPLETED)
        if collecting in done:
            await collecting
        return list(found.values())

    async def state(self) -> StreamState:
        """How full the stream is; zeros when it cannot be read."""
        try:
            info = await self._broker.api(f"STREAM.INFO.{names.TELEMETRY}", timeout_s=STATE_S_MAX)
        except PenstockError:
            return StreamState()
        stored, limit = info["state"]["bytes"], info["config"].get("max_bytes", -1)
        return StreamState(info["state"]["messages"], stored, round(100 * stored / limit, 3) if limit > 0 else 0.0)

    async def _send(self, subject: str, body: object, kind: str, headers: dict[str, str] | None = None) -> None:
        if not self._broker.connected or self._broker.unwritten > BEHIND_BYTES:
            self._dropped.add(kind)
            return
        try:
            await self._broker.publish(subject, _ENCODER.encode(body), headers=headers)
        except PenstockError:
            self._dropped.add(kind)


def _reports(answer: bytes) -> list[ProcessReport]:
    """The reports in an answer. Any client of the broker may answer: malformed reports are ignored."""
    try:
        return _REPORTS.decode(answer)
    except msgspec.MsgspecError:
        return []
