"""Operations on the service itself: health, metrics, documents."""

from __future__ import annotations

from penstock.client.operating.views import TelemetryStatus
from penstock.engine.access.scopes import KeyScope
from penstock.http.openapi.operations.operation import HTML, TEXT, Access, Answer, Operation
from penstock.http.openapi.reference import DefinitionSchema, Document, Reference
from penstock.http.system import health
from penstock.http.system.metrics import Metrics

SERVICE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "getHealth", "/health", health.Health.on_get, "Service", {200: Answer(health.HealthStatus)}, access=Access.OPEN
    ),
    Operation(
        "getReady", "/ready", health.Ready.on_get, "Service", {200: Answer(health.HealthStatus)}, access=Access.OPEN
    ),
    Operation(
        "getTelemetryHealth",
        "/health/telemetry",
        health.TelemetryHealth.on_get,
        "Service",
        {200: Answer(TelemetryStatus)},
        access=Access.OPEN,
        needs_broker=False,
    ),
    Operation(
        "getMetrics",
        "/metrics",
        Metrics.on_get,
        "Service",
        {200: Answer(media=(TEXT,))},
        needs_broker=False,
        scope=KeyScope.READ,
    ),
    Operation(
        "getDocument",
        "/openapi.json",
        Document.on_get,
        "Service",
        {200: Answer({"type": "object"}), 304: Answer(media=())},
        access=Access.OPEN,
        needs_broker=False,
    ),
    Operation(
        "getDefinitionSchema",
        "/schemas/definition.json",
        DefinitionSchema.on_get,
        "Service",
        {200: Answer({"type": "object"}), 304: Answer(media=())},
        access=Access.OPEN,
        needs_broker=False,
    ),
    Operation(
        "getReference",
        "/docs",
        Reference.on_get,
        "Service",
        {200: Answer(media=(HTML,)), 304: Answer(media=())},
        access=Access.OPEN,
        needs_broker=False,
    ),
)
