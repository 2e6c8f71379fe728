"""While no token is set, the control plane answers only this machine, unless that is wanted otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings, to_environ
from penstock.http.app import Application, create_app
from penstock.http.openapi.operations.operation import Access
from penstock.http.openapi.table import OPERATIONS
from tests.support.conductor import Conductor
from tests.support.routes import api_routes
from tests.support.service import free_port
from tests.support.waiting import until_true

ELSEWHERE = (
    "192.0.2.7",
    "10.0.0.1",
    "172.17.0.1",
    "::ffff:192.0.2.7",
    "2001:db8::1",
    "fe80::1%eth0",
    "0.0.0.0",
    "::",
    "localhost",
    "",
    "x",
)
HERE = ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1")
BODY = b'{"workflow":"one"}'
PLACES = {
    "run_id": "0" * 32,
    "other": "1" * 32,
    "step_id": "a",
    "task_id": "0" * 32 + ".a",
    "name": "nobody",
    "seq": "999999",
    "scope": "nobody",
}
FORGED = ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "True-Client-IP", "X-Forwarded-Host")


@pytest.fixture
async def services(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[dict[str, Conductor]]:
    """One of each mode."""
    given: dict[str, dict[str, Any]] = {
        "protected": {"bridge_token": "b"},
        "insecure": {"insecure": True},
        "token": {"api_token": "t"},
        "token and insecure": {"api_token": "t", "insecure": True},
    }
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                Conductor(create_app(Settings(broker=broker_settings, http=HttpSettings(**one))))
            )
            for name, one in given.items()
        }


@pytest.mark.parametrize("peer", ELSEWHERE)
async def test_a_client_from_another_machine_is_answered_how_to_get_access_and_starts_nothing(
    services: dict[str, Conductor], store: Store, peer: str
) -> None:
    before = await store.history.last_seq()
    for method, path in (
        ("POST", "/runs"),
        ("GET", "/runs"),
        ("HEAD", "/runs"),
        ("OPTIONS", "/runs"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
    ):
        answer = await services["protected"].simulate_request(
            method, path, body=BODY, remote_addr=peer or "0", host="penstock"
        )
        assert (403, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
        if method != "HEAD":
            assert "SERVICE_API_TOKEN" in answer.text
            assert "SERVICE_INSECURE" in answer.text
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("peer", HERE)
async def test_this_machine_is_answered(services: dict[str, Conductor], peer: str) -> None:
    assert 201 == (await services["protected"].simulate_post("/runs", body=BODY, remote_addr=peer)).status_code


@pytest.mark.parametrize("header", FORGED)
async def test_no_header_makes_a_peer_of_this_machine(services: dict[str, Conductor], header: str) -> None:
    forged = {header: "for=127.0.0.1" if header == "Forwarded" else "127.0.0.1"}
    for peer, expected in (("192.0.2.7", 403), ("127.0.0.1", 201)):
        answer = await services["protected"].simulate_post("/runs", body=BODY, headers=forged, remote_addr=peer)
        assert expected == answer.status_code


async def test_a_peer_without_an_address_is_of_this_machine_only_on_a_unix_socket(
    services: dict[str, Conductor],
) -> None:
    """A TCP peer has none when it has gone before it was let in: what it sent is read all the same."""
    app = services["protected"].app
    for server, expected in (
        (["127.0.0.1", 8080], 403),
        (None, 403),
        (["/run/penstock.sock", None], 201),
        (["/", "r"], 201),
    ):
        assert expected == await _asked(app, {"client": None, "server": server})
    assert 403 == await _asked(app, {"server": ["127.0.0.1", 8080]})


async def test_what_has_an_account_of_its_own_is_as_ever(services: dict[str, Conductor]) -> None:
    """Probes, webhooks, the bridge and approvals answer peers from anywhere as they answer this machine."""
    for one in OPERATIONS:
        headers = (
            {"Authorization": "Bearer b"} if one.access is Access.BRIDGE and one.path != "/v1/workers/connect" else {}
        )
        path, query = (
            one.path.format(**PLACES),
            {"action": "approve", "token": "x"} if one.access is Access.APPROVAL else {},
        )
        asked = [
            (
                await services["protected"].simulate_request(
                    one.method.upper(), path, headers=headers, params=query, remote_addr=peer
                )
            ).status_code
            for peer in ("127.0.0.1", "192.0.2.7")
        ]
        if one.access in (Access.API, Access.SIGN_IN):
            assert 403 == asked[1], one.name
            assert 403 != asked[0], one.name
        else:
            assert asked[0] == asked[1] != 403, one.name
    assert {one.path for one in OPERATIONS} == {route.path for route in api_routes(services["protected"].app)}


async def test_a_token_or_insecure_lets_peers_in_from_everywhere(services: dict[str, Conductor]) -> None:
    async def asked(service: str, **headers: str) -> int:
        more = {"remote_addr": "192.0.2.7", "host": "penstock.example"}
        return int((await services[service].simulate_post("/runs", body=BODY, headers=headers, **more)).status_code)

    assert 201 == await asked("insecure")
    for service in ("token", "token and insecure"):
        assert 401 == await asked(service)
        assert 201 == await asked(service, Authorization="Bearer t")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8080", 201),
        ("[::1]:8080", 201),
        ("192.0.2.1", 201),
        ("localhost:8080", 201),
        ("LocalHost", 201),
        ("app.localhost:8080", 201),
        ("penstock:8080", 201),
        ("my-mac.local", 201),
        ("host.docker.internal:8080", 201),
        ("evil.example:8080", 403),
        ("evil.example.", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("evil-local", 201),
        ("evil.xlocal", 403),
        ("127.1", 403),
    ],
)
async def test_a_name_that_a_stranger_can_point_here_leads_to_nothing(
    services: dict[str, Conductor], host: str, expected: int
) -> None:
    """A page of evil.example whose name is then made to mean 127.0.0.1 is no foreign page to the browser."""
    own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    answer = await services["protected"].simulate_post("/runs", body=BODY, host=host, headers=own)
    assert expected == answer.status_code
    assert (403 if expected == 403 else 200) == (
        await services["protected"].simulate_get("/workflows", host=host)
    ).status_code
    if expected == 403:
        assert "SERVICE_API_TOKEN" in answer.text
        assert host.partition(":")[0] in answer.text
    assert 201 == (await services["insecure"].simulate_post("/runs", body=BODY, host=host, headers=own)).status_code


@pytest.fixture
def network() -> Iterator[str]:
    """The name of a network namespace with the loopback and one address more."""
    name = f"penstock-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no network namespaces here")
    try:
        for command in ("link set lo up", "address add 192.0.2.1/32 dev lo"):
            subprocess.run(["ip", "-n", name, *command.split()], check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@contextmanager
def gunicorn(command: list[str], settings: Settings, log: Path) -> Iterator[None]:
    """The front end under gunicorn, for the time of the block."""
    environ = {**os.environ, **to_environ(settings), "SERVICE_LOG_FORMAT": "json"}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "penstock.http.app:application"], env=environ, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        server.terminate()
        server.wait(20)


async def test_under_gunicorn_the_sockets_own_address_decides(network: str, tmp_path: Path) -> None:
    """Without a broker, what is let in is 503."""
    port, path, log = free_port(), str(tmp_path / "penstock.sock"), tmp_path / "log"
    settings = Settings(
        broker=BrokerSettings(url="nats://127.0.0.1:9", data_dir=str(tmp_path)), http=HttpSettings(workers=2)
    )
    command = [
        "ip",
        "netns",
        "exec",
        network,
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        "python:penstock.config.gunicorn",
    ]
    with gunicorn([*command, "-b", f"0.0.0.0:{port}", "-b", f"unix:{path}"], settings, log):
        await until_true(lambda: curl("--unix-socket", path, "http://localhost/docs") == 200)
        asked = {
            address: curl(f"http://{address}:{port}/runs", within=network)
            for address in ("127.0.0.1", "127.0.0.2", "192.0.2.1")
        }
        assert {"127.0.0.1": 503, "127.0.0.2": 503, "192.0.2.1": 403} == asked
        assert 200 == curl(f"http://192.0.2.1:{port}/docs", within=network)
        assert 503 == curl("--unix-socket", path, "http://localhost/runs")
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]
    assert ["protected"] == [line["mode"] for line in lines if line["event"] == "control_plane"]


def curl(*arguments: str, within: str | None = None) -> int:
    """The status of an answer; 0 without one."""
    command = ["ip", "netns", "exec", within] if within else []
    command += ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "--noproxy", "*", "-m", "5", *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


@pytest.mark.parametrize(
    ("given", "mode", "level"),
    [
        (HttpSettings(), "protected", "info"),
        (HttpSettings(insecure=True), "insecure", "warning"),
        (HttpSettings(api_token="s3cret"), "token", "info"),
        (HttpSettings(api_token="s3cret", insecure=True), "token", "info"),
    ],
)
def test_the_start_says_whom_the_control_plane_answers(
    given: HttpSettings, mode: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_CONFIG", "")
    from penstock.config import gunicorn as server

    monkeypatch.setattr(server, "_settings", Settings(http=given))
    with structlog.testing.capture_logs() as lines:
        server.when_ready(None)
    assert [("control_plane", mode, level)] == [(line["event"], line["mode"], line["log_level"]) for line in lines]
    assert "s3cret" not in str(lines)


async def _asked(app: Application, scope: dict[str, Any]) -> int:
    """The status of POST /runs with this in the connection's scope."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(BODY))]
    http = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/runs",
        "query_string": b"",
    }
    await app({**http, "headers": headers, **scope}, receive, send)
    return int(sent[0]["status"])
