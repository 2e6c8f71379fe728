"""The Kubernetes examples: valid by the schemas of Kubernetes and KEDA, with settings and probes that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import yaml

from penstock.broker.embedded.server import find_binary
from penstock.config.keys import KEYS
from penstock.config.limits import BODY_BYTES_MAX, SHUTDOWN_S
from penstock.config.settings import load
from penstock.http.app import create_app
from penstock.telemetry.metrics import METRICS
from tests.support.server import server
from tests.support.tools import NODE, NODE_FOLDER
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.33")
FILES = ("single.yaml", "broker.yaml", "distributed.yaml", "network-policies.yaml")
Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def of_kind(kinds: set[str]) -> list[Document]:
    return [document for name in FILES for document in documents(name) if document["kind"] in kinds]


WORKLOADS = of_kind({"Deployment", "StatefulSet"})
[BROKER] = (workload for workload in WORKLOADS if workload["metadata"]["name"] == "nats")
OURS = [workload for workload in WORKLOADS if workload is not BROKER]


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
@pytest.mark.parametrize("name", FILES)
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


@pytest.mark.parametrize("workload", OURS, ids=lambda workload: workload["metadata"]["name"])
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
    assert {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}} == (
        container(workload)["securityContext"]
    )
    assert {"cpu", "memory"} == container(workload)["resources"]["requests"].keys()


def test_probes_ask_for_what_is_served_and_no_restart_follows_a_broker_that_is_away() -> None:
    router = create_app(load({}, {"SERVICE_CONFIG": ""}).settings)._router
    serving = [container(workload) for workload in OURS if "ports" in container(workload)]
    assert 2 == len(serving)
    for one in serving:
        for probe in (one["startupProbe"], one["readinessProbe"]):
            assert router.find(probe["httpGet"]["path"]) is not None
        assert {"port": "http"} == one["livenessProbe"]["tcpSocket"]


def test_a_worker_in_the_examples_exists() -> None:
    commands = [container(workload)["command"] for workload in OURS if "command" in container(workload)]
    assert commands
    for _, script in commands:
        assert (ROOT / script.removeprefix("/opt/")).is_file()


def labels(workload: Document) -> Document:
    found: Document = workload["spec"]["template"]["metadata"]["labels"]
    return found


def selected(selector: Document) -> list[str]:
    """The names of the workloads whose pods have all labels of the selector."""
    wanted = selector["matchLabels"].items()
    return [workload["metadata"]["name"] for workload in WORKLOADS if wanted <= labels(workload).items()]


def test_kustomize_is_given_files_that_exist_and_each_resource_once() -> None:
    [made] = documents("kustomization.yaml")
    assert ("kustomize.config.k8s.io/v1beta1", "Kustomization") == (made["apiVersion"], made["kind"])
    assert {"apiVersion", "kind", "namespace", "resources", "images"} == made.keys()
    found = [
        (document["kind"], document["metadata"]["name"]) for name in made["resources"] for document in documents(name)
    ]
    assert len(set(found)) == len(found) > 10
    images = {container(workload)["image"].partition(":")[0] for workload in WORKLOADS}
    assert images == {image["name"] for image in made["images"]}


def test_three_brokers_are_spread_and_at_most_one_is_taken_away_at_a_time() -> None:
    assert 3 == BROKER["spec"]["replicas"]
    [spread] = BROKER["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert ("kubernetes.io/hostname", "DoNotSchedule") == (spread["topologyKey"], spread["whenUnsatisfiable"])
    assert ["nats"] == selected(spread["labelSelector"])
    budgets = {tuple(selected(one["spec"]["selector"])): one["spec"] for one in of_kind({"PodDisruptionBudget"})}
    assert 1 == budgets[("nats",)]["maxUnavailable"]
    assert {("nats",), ("penstock-engine",), ("penstock-api",), ("hello-worker",)} == budgets.keys()


def broker_environment() -> dict[str, str]:
    """As the first broker sees it."""
    given = {entry["name"]: entry.get("value", "secret") for entry in container(BROKER)["env"]} | {"NODE": "nats-0"}
    return {name: re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value) for name, value in given.items()}


def test_the_broker_accepts_its_configuration_and_knows_the_others(tmp_path: Path) -> None:
    maps = {document["metadata"]["name"]: document["data"] for document in of_kind({"ConfigMap"})}
    text = maps["penstock-broker"]["broker.conf"]
    given = broker_environment()
    assert set(re.findall(r"\$(\w+)", text)) == set(given)
    (tmp_path / "broker.conf").write_text(text)
    command = [find_binary(), "-t", "-c", str(tmp_path / "broker.conf")]
    checked = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert 0 == checked.returncode, checked.stderr
    assert f"max_payload: {BODY_BYTES_MAX}" in text

    nodes = [f"nats-{number}.{BROKER['spec']['serviceName']}" for number in range(BROKER["spec"]["replicas"])]
    assert [f"nats://secret:secret@{node}:6222" for node in nodes] == [given[f"ROUTE_{number}"] for number in range(3)]
    url = load({}, environment(OURS[-1])).settings.broker.url
    assert url == ",".join(f"nats://{node}:4222" for node in nodes)
    [headless] = (one for one in of_kind({"Service"}) if one["metadata"]["name"] == BROKER["spec"]["serviceName"])
    assert "None" == headless["spec"]["clusterIP"]
    mounts = [mount["mountPath"] for mount in container(BROKER)["volumeMounts"] if mount["name"] == "data"]
    [store] = re.findall(r'store_dir: "([^"]+)"', text)
    assert [store.rpartition("/")[0]] == mounts


async def test_the_broker_answers_each_of_its_probes(tmp_path: Path) -> None:
    """One alone, with JetStream: what is asked for is served."""
    with server(tmp_path) as one:
        await until(one.healthy)
        async with httpx2.AsyncClient(base_url=one.monitoring_url, trust_env=False) as http:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container(BROKER)[probe]["httpGet"]
                assert "monitor" == asked["port"]
                assert 200 == (await http.get(asked["path"])).status_code
            assert 200 != (await http.get("/healthz?account=none")).status_code


def test_only_clients_of_the_broker_reach_it() -> None:
    policies = {tuple(selected(one["spec"]["podSelector"])): one["spec"] for one in of_kind({"NetworkPolicy"})}
    assert {("nats",), ("penstock-api",), ("penstock-engine",), ("hello-worker",)} == policies.keys()
    clients, brokers = policies[("nats",)]["ingress"]
    assert ["penstock-engine", "penstock-api", "hello-worker"] == selected(clients["from"][0]["podSelector"])
    assert ["nats"] == selected(brokers["from"][0]["podSelector"])
    ports = {port["name"] for port in container(BROKER)["ports"]}
    assert {"client", "cluster"} == {one["port"] for rule in (clients, brokers) for one in rule["ports"]} < ports
    assert ["Ingress"] == policies[("penstock-engine",)]["policyTypes"]
    assert "ingress" not in policies[("penstock-engine",)]
