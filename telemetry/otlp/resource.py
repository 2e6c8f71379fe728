"""Who exports: the service, and the process of it. Variables of OpenTelemetry have the last word."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from msgspec import Struct
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

SERVICE, WORKER = "penstock", "penstock-worker"


class OtlpTarget(Struct, frozen=True):
    """Where to export to: the address without the path of a signal, and headers that each request has."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()

    def of(self, signal: str) -> str:
        """The address of one signal: traces, metrics or logs."""
        return f"{self.endpoint.rstrip('/')}/v1/{signal}"


def resource(service: str, process: str, version: str) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace what is set here."""
    own = Resource.create(
        {
            "service.name": service,
            "service.version": version,
            "service.instance.id": uuid4().hex,
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
            "penstock.process": process,
        }
    )
    return own.merge(OTELResourceDetector().detect())
