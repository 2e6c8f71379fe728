"""The service behind the example's TLS proxy: requests, long polls and streams of events come through at once."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import httpx2
import pytest

from tests.support.proxy import running
from tests.support.service import Service, free_port
from tests.support.tools import NGINX

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here")

# the service writes a comment at the latest after so long; a proxy that buffers would hold back far more
AT_ONCE_S = 2.0
DEFINITION = {"name": "proxied", "steps": [{"id": "a", "task": "nobody.does.it"}]}


def test_the_proxy_passes_everything_on(service: Service, tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, port, service.http_address[1]):
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx2.Client(base_url=f"https://127.0.0.1:{port}", verify=trust, timeout=20) as client:
            wait_for(client)
            assert 201 == client.post("/workflows", json=DEFINITION).status_code
            run_id = client.post("/runs", json={"workflow": "proxied", "input": "x" * 1_000_000}).json()["run_id"]
            assert "running" == client.get(f"/runs/{run_id}", params={"wait_ms": 1500}).json()["status"]
            with client.stream("GET", f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as answer:
                lines = answer.iter_lines()
                assert any("workflow.started" in line for line in lines)
                began = time.monotonic()
                service_cancels(service, run_id)
                assert any("workflow.cancelled" in line for line in lines)
                assert time.monotonic() - began < AT_ONCE_S
            assert 413 == client.post("/runs", content=b"x" * 9_000_000).status_code


def wait_for(client: httpx2.Client) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            assert 200 == client.get("/ready").status_code
            return
        except httpx2.TransportError:
            time.sleep(0.05)
    raise AssertionError("the proxy does not answer")


def service_cancels(service: Service, run_id: str) -> None:
    with service.client() as client:
        client.cancel(run_id)
