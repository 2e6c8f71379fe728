"""Metrics and logs over OTLP, and collectors that are away, slow, or refuse everything: no run notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.test_traces import BEGUN, HEADER, SOON, TRACE, begin, ended, register, serving
from tests.support.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.support.service import Service, free_port
from tests.support.waiting import until

SECRET = "s3cret-0123456789"
RUNS = 40
# The run fails, and the run that is to follow cannot start: a line of the log says so, and names the secret.
REFUSED = {
    "name": "refused",
    "on_failure": {"workflow": SECRET},
    "steps": [{"id": "sub", "type": "sub_workflow", "config": {"workflow": "absent"}}],
}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        yield found


def points(receiver: OtlpReceiver, name: str) -> list[tuple[dict[str, Any], Any]]:
    """The resource and the last point of each time series of this metric."""
    found: dict[Any, tuple[dict[str, Any], Any]] = {}
    for about, metric in receiver.metrics:
        if metric.name == name:
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                labels = tuple((one.key, one.value.string_value) for one in point.attributes)
                found[about["penstock.process"], labels] = about, point
    return list(found.values())


def test_metrics_have_the_names_and_values_of_the_page(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with serving(tmp_path, receiver) as service:
        register(service, BEGUN)
        for _ in range(RUNS):
            ended(service, begin(service, "begun", header=None))

        def counted() -> bool:
            runs = [point for _, point in points(receiver, "penstock_run_duration_seconds")]
            return RUNS == sum(point.count for point in runs)

        receiver.until(counted)
    kinds = {metric.name: metric.WhichOneof("data") for _, metric in receiver.metrics}
    assert ("sum", "gauge") == (kinds["penstock_run_events_total"], kinds["penstock_process_resident_memory_bytes"])
    assert "penstock_runs" not in kinds, "a value of the whole service"
    [(about, point)] = points(receiver, "penstock_run_duration_seconds")
    assert (RUNS, RUNS) == (sum(point.bucket_counts), point.count)
    assert (18, 19) == (len(point.explicit_bounds), len(point.bucket_counts))
    assert ("penstock", "shard-0") == (about["service.name"], about["penstock.process"])
    assert {"shard-0", "services", "http-0"} <= {about["penstock.process"] for about, _ in receiver.metrics}


def test_lines_of_the_log_have_the_trace_of_their_run_and_no_secret(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with serving(tmp_path, receiver, api_token=SECRET, otlp_headers="x-tenant=one") as service:
        headers = {"authorization": f"Bearer {SECRET}"}
        with httpx2.Client(base_url=service.url, headers=headers, trust_env=False) as http:
            assert 201 == http.post("/workflows", json=REFUSED).status_code
            traced = http.post("/runs", json={"workflow": "refused"}, headers={"traceparent": HEADER}).json()["run_id"]
            untraced = http.post("/runs", json={"workflow": "refused"}).json()["run_id"]
        receiver.until(lambda: {traced, untraced} <= {line.attributes.get("run_id") for line in receiver.logs})
        receiver.until(lambda: TRACE in {span.trace_id for span in receiver.spans})
    lines = {line.attributes["run_id"]: line for line in receiver.logs if line.body == "failure_run_refused"}
    assert (TRACE, untraced) == (lines[traced].trace_id, lines[untraced].trace_id)
    [run] = {span for span in receiver.spans if span.name == "run refused" and span.trace_id == TRACE}
    assert (run.span_id, "ERROR", "(hidden)") == (
        lines[traced].span_id,
        lines[traced].severity,
        lines[traced].attributes["workflow"],
    )
    assert all(SECRET not in str(line) for line in receiver.logs)
    assert {"penstock"} == {line.resource["service.name"] for line in receiver.logs}
    assert {"one"} == {headers["x-tenant"] for headers in receiver.headers}


def timed(service: Service) -> None:
    """Runs go through."""
    register(service, BEGUN)
    runs = [begin(service, "begun", header=None) for _ in range(RUNS)]
    assert {"completed"} == {ended(service, run_id)["status"] for run_id in runs}


def dropped(service: Service) -> float:
    with httpx2.Client(base_url=service.url, trust_env=False) as http:
        rows = [row for row in http.get("/metrics").text.splitlines() if 'kind="otlp_span"' in row]
        return sum(float(row.rpartition(" ")[2]) for row in rows)


@pytest.mark.parametrize("fault", ["away", "refuses", "hangs"])
async def test_a_collector_that_takes_nothing_slows_no_run(tmp_path: Path, receiver: OtlpReceiver, fault: str) -> None:
    if fault == "away":
        receiver.url = f"http://127.0.0.1:{free_port()}"
    elif fault == "refuses":
        receiver.status = 500
    else:
        receiver.held.clear()
    environ = {**SOON, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with Service(tmp_path / "s", environ, shards=1, http_workers=1, otlp_endpoint=receiver.url) as service:
        timed(service)

        async def counted() -> bool:
            return dropped(service) > 0

        await until(counted)
        timed(service)  # the queues are in use, and nothing waits for them


def test_a_collector_that_comes_back_gets_what_follows(tmp_path: Path, receiver: OtlpReceiver) -> None:
    receiver.status = 500
    with serving(tmp_path, receiver) as service:
        register(service, BEGUN)
        ended(service, begin(service, "begun", header=None))
        receiver.until(lambda: receiver.asked > 0)
        receiver.status = 200
        ended(service, begin(service, "begun"))
        receiver.until(lambda: TRACE in {span.trace_id for span in receiver.spans})
