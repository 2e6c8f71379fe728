"""The examples of deployment say what exists: each setting, each path, each limit; and the tools that read them accept
them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.broker.embedded.server import find_binary
from penstock.config.keys import KEYS
from penstock.config.limits import BODY_BYTES_MAX, BRIDGE_COMMENT_S, MIB, POLL_MS_MAX, SHUTDOWN_S, WAIT_MS_MAX
from penstock.config.settings import load
from penstock.config.units import parse_duration, parse_size
from penstock.http.app import create_app
from tests.support.proxy import configure
from tests.support.service import free_port
from tests.support.tools import NGINX

EXAMPLES = Path(__file__).parents[1] / "examples" / "deploy"
NODES = ("broker-0", "broker-1", "broker-2")
VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")


def unit() -> ConfigParser:
    parsed = ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(EXAMPLES / "penstock.service")
    return parsed


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return parsed


def environment(service: dict[str, Any]) -> dict[str, str]:
    """As the processes of the container see it."""
    return {name: VARIABLE.sub("secret", str(value)) for name, value in service["environment"].items()}


def directives(text: str) -> Iterator[tuple[str, str, str]]:
    """Of nginx.conf: the block that a directive stands in, its name and its value."""
    blocks = ["main"]
    text = re.sub(r"#.*", "", text)
    for words, end in re.findall(r"((?:'[^']*'|\"[^\"]*\"|[^;{}])*)([;{}])", text):
        name, _, value = words.strip().partition(" ")
        if end == "{":
            blocks.append(words.strip())
        elif end == "}":
            blocks.pop()
        else:
            yield blocks[-1], name, value.strip()
    assert blocks == ["main"]


def test_the_settings_file_is_accepted() -> None:
    settings = load({}, {}, EXAMPLES / "penstock.toml").settings
    assert ("127.0.0.1", "/var/lib/penstock") == (settings.http.listen.host, settings.broker.data_dir)
    secrets = {key.name for key in KEYS.values() if key.secret}
    assert not secrets & tomllib.loads((EXAMPLES / "penstock.toml").read_text()).keys()


def test_the_unit_starts_the_service_with_that_file_and_lets_it_end() -> None:
    service = unit()["Service"]
    program, command, flag, path = service["ExecStart"].split()
    assert ("penstock", "serve", "--config", "penstock.toml") == (Path(program).name, command, flag, Path(path).name)
    assert f"/var/lib/{service['StateDirectory']}" == load({}, {}, EXAMPLES / "penstock.toml").settings.broker.data_dir
    assert parse_duration(service["TimeoutStopSec"]) > SHUTDOWN_S
    assert "mixed" == service["KillMode"]  # the supervisor ends its children in order
    assert {"yes"} == {service[name] for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices")}
    assert "strict" == service["ProtectSystem"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "penstock"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / "penstock.service"
    copy.write_text(
        (EXAMPLES / "penstock.service").read_text().replace("/opt/penstock/.venv/bin/penstock", str(program))
    )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (0, "") == (checked.returncode, checked.stderr)


def test_every_setting_in_the_compose_file_exists_and_is_accepted() -> None:
    variables = {key.variable for key in KEYS.values()}
    services = compose()["services"]
    for name in ("engine", "api", "worker"):
        given = environment(services[name])
        assert given.keys() <= variables, name
        broker = load({}, given).settings.broker
        assert (3, NODES) == (broker.replicas, tuple(re.findall(r"nats://([^:]+):", broker.url or "")))
        assert ("penstock", "secret") == (broker.user, broker.password)
    assert [["engine"], ["api"]] == [services[name]["command"] for name in ("engine", "api")]
    assert environment(services["api"]).keys() >= {"SERVICE_API_TOKEN", "SERVICE_BRIDGE_TOKEN"}


@pytest.mark.parametrize(
    ("name", "parts"),
    [("compose.yaml", {*NODES, "engine", "api", "worker"}), ("compose-single.yaml", {"penstock", "worker"})],
)
def test_the_compose_file_holds_together(name: str, parts: set[str]) -> None:
    found = compose(name)
    services = found["services"]
    assert parts == services.keys()
    for service in services.values():
        assert set(service.get("depends_on", {})) <= services.keys()
        assert parse_duration(service["stop_grace_period"]) > SHUTDOWN_S
        root = (EXAMPLES / service["build"]["context"]).resolve()
        assert (root / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in found["volumes"] or (EXAMPLES / source).exists()
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")  # a TLS proxy stands in front
    worker = services["worker"]["entrypoint"][1]
    assert (EXAMPLES.parents[1] / worker.removeprefix("/opt/")).is_file()


def test_one_container_serves_the_outside_and_asks_for_both_tokens() -> None:
    given = environment(compose("compose-single.yaml")["services"]["penstock"])
    settings = load({}, given).settings
    assert "0.0.0.0" == settings.http.listen.host
    assert ("secret", "secret") == (settings.http.api_token, settings.http.bridge_token)
    assert settings.broker.data_dir.startswith("/var/lib/penstock/")
    for name in ("API_TOKEN", "BRIDGE_TOKEN"):
        assert f"${{{name}:?" in (EXAMPLES / "compose-single.yaml").read_text()


def test_the_image_is_sent_what_it_copies_and_no_more() -> None:
    """The builder's context: nothing of a checkout's data, virtualenv, history or tests goes into an image."""
    lines = [
        line
        for line in (EXAMPLES.parents[1] / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" == lines[0]
    folders = ConfigParser()
    folders.read(EXAMPLES.parents[1] / "setup.cfg")
    packages = {line.split(" = ")[1] for line in folders["options"]["package_dir"].strip().splitlines()}
    loose = {"setup.cfg", "pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY_LICENSES"}
    assert packages | loose | {"examples"} == kept


def test_secrets_in_the_compose_file_are_asked_for() -> None:
    text = (EXAMPLES / "compose.yaml").read_text()
    for name in ("BROKER_PASSWORD", "API_TOKEN", "BRIDGE_TOKEN"):
        assert f"${{{name}:?" in text


@pytest.mark.parametrize("node", NODES)
def test_the_broker_accepts_its_configuration(node: str) -> None:
    given = environment(compose()["services"][node])
    used = set(re.findall(r"\$(\w+)", (EXAMPLES / "broker.conf").read_text()))
    assert (node, used) == (given["NODE"], set(given))
    command = [find_binary(), "-t", "-c", str(EXAMPLES / "broker.conf")]
    checked = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=False)
    assert 0 == checked.returncode, checked.stderr
    assert f"max_payload: {BODY_BYTES_MAX}" in (EXAMPLES / "broker.conf").read_text()


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each instruction with its arguments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (EXAMPLES / "Dockerfile").read_text())
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def healthcheck() -> list[str]:
    [given] = (rest for name, rest in instructions() if name == "HEALTHCHECK")
    command: list[str] = json.loads(given.partition(" CMD ")[2])
    return command


def test_hadolint_accepts_the_image_and_would_refuse_what_is_wrong() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    text = (EXAMPLES / "Dockerfile").read_text()
    for given, expected in ((text, ""), (text.replace("WORKDIR /src", "WORKDIR src"), "DL3000")):
        checked = subprocess.run([hadolint, "-"], input=given, capture_output=True, text=True, check=False)
        assert (checked.returncode == 0, expected in checked.stdout) == (not expected, True), checked.stdout


def test_what_runs_in_the_image_is_the_second_stage_with_its_user_and_its_data() -> None:
    found = instructions()
    last = max(at for at, (name, _) in enumerate(found) if name == "FROM")
    final = found[last:]
    assert 2 == sum(name == "FROM" for name, _ in found)
    assert ["useradd"] == [rest.split()[0] for name, rest in final if name == "RUN"]  # nothing is installed there
    places = [rest for name, rest in final if name in ("WORKDIR", "VOLUME")]
    assert ["/var/lib/penstock"] * 2 == places
    assert "--home-dir /var/lib/penstock " in dict(final)["RUN"]
    assert "PYTHONDONTWRITEBYTECODE=1" in dict(final)["ENV"]


def test_the_health_of_the_image_is_that_of_the_service_in_it() -> None:
    router = create_app(load({}, {"SERVICE_CONFIG": ""}).settings)._router
    assert router.find("/ready") is not None
    port = free_port()
    environ = {**os.environ, "SERVICE_URL": f"http://127.0.0.1:{port}"}
    python, *arguments = healthcheck()
    assert "python" == python
    asked = subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True, check=False)
    assert "Connection refused" in asked.stderr
    assert 1 == asked.returncode


@pytest.mark.parametrize("name", ["compose.yaml", "compose-single.yaml"])
def test_containers_can_write_to_their_data_only_and_those_without_http_are_not_asked(name: str) -> None:
    for service in compose(name)["services"].values():
        assert (True, ["/tmp"], ["ALL"]) == (service["read_only"], service["tmpfs"], service["cap_drop"])
        assert "user" not in service
        serves = service.get("command", ["none"])[0] in ("serve", "api")
        asked = service["healthcheck"].get("test", [""])[-1]
        assert serves == ("/ready" in asked)
        assert asked or service["healthcheck"] == {"disable": True}
        for volume in service.get("volumes", []):
            assert volume.split(":")[1] == "/var/lib/penstock" or volume.endswith(":ro")


def test_the_image_copies_and_starts_what_is_there() -> None:
    lines = (EXAMPLES / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["penstock"]' in lines
    assert any(line.startswith("USER ") and line != "USER root" for line in lines)
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert (EXAMPLES.parents[1] / line.split()[1]).exists()


def test_a_container_with_a_published_port_is_started_with_a_token_since_every_request_comes_from_outside() -> None:
    pages = (EXAMPLES / "Dockerfile", *(EXAMPLES.parents[1] / "docs").glob("*.md"))
    started = [
        line for page in pages for line in page.read_text().splitlines() if "docker run" in line and " -p " in line
    ]
    assert len(started) >= 2
    assert [] == [line for line in started if "-e SERVICE_API_TOKEN=" not in line]
    for service in compose()["services"].values():
        assert "ports" not in service or "SERVICE_API_TOKEN" in environment(service)


def test_the_proxy_lets_long_polls_and_streams_through() -> None:
    found = list(directives((EXAMPLES / "nginx.conf").read_text()))
    everywhere = {name: value for block, name, value in found if block == "server"}
    assert parse_duration(everywhere["proxy_read_timeout"]) > max(POLL_MS_MAX, WAIT_MS_MAX) / 1000 > BRIDGE_COMMENT_S
    assert (
        BODY_BYTES_MAX
        <= parse_size(everywhere["client_max_body_size"].upper().replace("M", "MiB"))
        < BODY_BYTES_MAX + MIB
    )
    assert "1.1" == everywhere["proxy_http_version"]
    assert ("server", "proxy_set_header", 'Connection ""') in found  # connections to the front end are kept
    streams = [block for block, name, value in found if (name, value) == ("proxy_buffering", "off")]
    assert ["location = /v1/workers/connect", "location ~ ^/runs/[^/]+/(events|logs|stream)$"] == streams


def test_the_proxy_logs_no_query_which_may_hold_an_approval_token() -> None:
    [form] = [value for _, name, value in directives((EXAMPLES / "nginx.conf").read_text()) if name == "log_format"]
    assert not set(re.findall(r"\$\w+", form)) & {"$request", "$request_uri", "$args", "$query_string", "$http_referer"}


def test_every_path_that_the_proxy_names_is_served() -> None:
    router = create_app(load({}, {"SERVICE_CONFIG": ""}).settings)._router
    for path in ("/v1/workers/connect", "/metrics", "/runs/x/events"):
        assert router.find(path) is not None, path


@pytest.mark.skipif(NGINX is None, reason="no nginx here")
def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    assert NGINX
    checked = subprocess.run(
        [NGINX, "-t", "-c", str(configure(tmp_path, free_port(), 8080))], capture_output=True, text=True, check=False
    )
    assert 0 == checked.returncode, checked.stderr
