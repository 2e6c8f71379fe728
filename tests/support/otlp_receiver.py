"""A receiver of OTLP over HTTP: a server of its own thread that decodes what exporters send, by OpenTelemetry's own
messages."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

WAIT_S = 20.0


class ReceivedSpan(NamedTuple):
    """Ids in hex; times in nanoseconds; `parent_id` empty for a root; `status` 2 is an error."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    begin: int
    end: int
    kind: int
    status: int
    attributes: tuple[tuple[str, Any], ...]
    resource: tuple[tuple[str, Any], ...]

    def about(self, name: str) -> Any:
        """An attribute of the span, or else of who sent it."""
        return {**dict(self.resource), **dict(self.attributes)}.get(name)


class ReceivedLog(NamedTuple):
    trace_id: str
    span_id: str
    body: str
    severity: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


class OtlpReceiver:
    """What has come. `status` is what it answers; `held` makes it answer nothing until it is set."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.metrics: list[tuple[dict[str, Any], Any]] = []
        self.logs: list[ReceivedLog] = []
        self.headers: list[dict[str, str]] = []
        self.asked = 0
        self.status = 200
        self.held = threading.Event()
        self.held.set()
        self.url = ""
        self._changed = threading.Condition()

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        self.held.wait(WAIT_S)
        with self._changed:
            self.asked += 1
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if self.status == 200:
                self._keep(path, gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)
            self._changed.notify_all()
        return self.status

    def until(self, ready: Callable[[], object], wait_s: float = WAIT_S) -> None:
        """Wait until `ready` is true; it is asked again whenever something has come."""
        end = time.monotonic() + wait_s
        with self._changed:
            while not ready():
                left = end - time.monotonic()
                assert left > 0, f"not received: {sorted({span.name for span in self.spans})}"
                self._changed.wait(left)

    def _keep(self, path: str, body: bytes) -> None:
        match path:
            case "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            case "/v1/metrics":
                for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    about = _plain(group.resource.attributes)
                    self.metrics += [(about, metric) for scope in group.scope_metrics for metric in scope.metrics]
            case "/v1/logs":
                self.logs += _logs(ExportLogsServiceRequest.FromString(body))
            case _:
                raise AssertionError(f"no signal has the path {path}")


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver at `url`, for the time of the block."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(receiver.take(self.path, dict(self.headers), body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.held.set()
        server.shutdown()
        server.server_close()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for group in request.resource_spans:
        resource = tuple(_plain(group.resource.attributes).items())
        for scope in group.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.kind,
                    span.status.code,
                    tuple(_plain(span.attributes).items()),
                    resource,
                )


def _logs(request: ExportLogsServiceRequest) -> Iterator[ReceivedLog]:
    for group in request.resource_logs:
        resource = _plain(group.resource.attributes)
        for scope in group.scope_logs:
            for line in scope.log_records:
                yield ReceivedLog(
                    line.trace_id.hex(),
                    line.span_id.hex(),
                    str(_value(line.body)),
                    line.severity_text,
                    _plain(line.attributes),
                    resource,
                )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
