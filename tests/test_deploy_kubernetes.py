"""The Kubernetes examples: valid by the schemas of Kubernetes and KEDA, with settings and probes that exist."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.config.keys import KEYS
from penstock.config.limits import SHUTDOWN_S
from penstock.config.settings import load
from penstock.http.app import create_app
from penstock.telemetry.metrics import METRICS
from tests.support.tools import NODE, NODE_FOLDER

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.33")
Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def of_kind(kinds: set[str]) -> list[Document]:
    return [
        document
        for name in ("single.yaml", "distributed.yaml")
        for document in documents(name)
        if document["kind"] in kinds
    ]


WORKLOADS = of_kind({"Deployment", "StatefulSet"})


def container(workload: Document) -> Document:
    [only] = workload["spec"]["template"]["spec"]["containers"]
    found: Document = only
    return found


def environment(workload: Document) -> dict[str, str]:
    """As the process of the container sees it; what comes from a secret is `secret`."""
    maps = {document["metadata"]["name"]: document["data"] for document in of_kind({"ConfigMap"})}
    given: dict[str, str] = {}
    for source in container(workload).get("envFrom", []):
        given |= maps[source["configMapRef"]["name"]]
    return given | {entry["name"]: entry.get("value", "secret") for entry in container(workload).get("env", [])}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["single.yaml", "distributed.yaml"])
def test_kubernetes_accepts_it(name: str, version: str) -> None:
    found = documents(name)
    assert found
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)


def test_the_check_would_find_a_field_that_does_not_exist() -> None:
    [service, *_] = documents("single.yaml")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service | {"spec": {"port": 1}}, VERSIONS[0], strict=True)


def keda(found: list[Document]) -> subprocess.CompletedProcess[str]:
    script = shutil.copy(ROOT / "tests" / "node" / "keda.mjs", NODE_FOLDER)
    return subprocess.run([NODE, script], input=json.dumps(found), capture_output=True, text=True, check=False)


def test_keda_accepts_it_and_would_refuse_what_is_wrong() -> None:
    found = documents("keda.yaml")
    assert (0, "") == ((checked := keda(found)).returncode, checked.stderr)

    wrong = found[0] | {"spec": found[0]["spec"] | {"minReplicaCount": "none"}}
    assert "minReplicaCount must be integer" in keda([wrong]).stderr


def test_keda_scales_a_workload_of_ours_by_a_metric_of_ours() -> None:
    [scaled] = documents("keda.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] in {workload["metadata"]["name"] for workload in WORKLOADS}
    [trigger] = scaled["spec"]["triggers"]
    assert 'penstock_queue_tasks{task="hello"}' in trigger["metadata"]["query"]
    assert "task" in METRICS["penstock_queue_tasks"].labels


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_settings_exist_and_are_accepted(workload: Document) -> None:
    given = environment(workload)
    assert given.keys() <= {key.variable for key in KEYS.values()}
    settings = load({}, given).settings
    for mount in container(workload).get("volumeMounts", []):
        if mount["name"] == "data":
            assert settings.broker.data_dir.startswith(mount["mountPath"] + "/")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_a_pod_has_no_more_rights_than_it_needs_and_the_time_to_end(workload: Document) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > SHUTDOWN_S
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert f"--uid {pod['securityContext']['runAsUser']} " in (ROOT / "examples" / "deploy" / "Dockerfile").read_text()
    assert {"drop": ["ALL"]} == container(workload)["securityContext"]["capabilities"]


def test_probes_ask_for_what_is_served_and_no_restart_follows_a_broker_that_is_away() -> None:
    router = create_app(load({}, {"SERVICE_CONFIG": ""}).settings)._router
    serving = [container(workload) for workload in WORKLOADS if "ports" in container(workload)]
    assert 2 == len(serving)
    for one in serving:
        for probe in (one["startupProbe"], one["readinessProbe"]):
            assert router.find(probe["httpGet"]["path"]) is not None
        assert {"port": "http"} == one["livenessProbe"]["tcpSocket"]


def test_a_worker_in_the_examples_exists() -> None:
    commands = [container(workload)["command"] for workload in WORKLOADS if "command" in container(workload)]
    assert commands
    for _, script in commands:
        assert (ROOT / script.removeprefix("/opt/")).is_file()
