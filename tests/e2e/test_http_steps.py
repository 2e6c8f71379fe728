"""Runs with HTTP requests: the service's own worker sends them, out into the world and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.support.service import Service
from tests.support.web_server import Asked, answer, web_server

SECRET = "geheim-4711"
PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(
        tmp_path_factory.mktemp("http-steps") / "service",
        {"PENSTOCK_SECRET_KEY": SECRET, "PENSTOCK_SECRET_BILLING_TOKEN": "of the page"},
        shards=1,
        http_workers=1,
        builtin_workers="http",
        http_allow="127.0.0.1",
        log_level="debug",
    ) as started:
        yield started


def request(step_id: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    own = {key: fields.pop(key) for key in ("retry", "retries", "timeout") if key in fields}
    return {"id": step_id, "type": "http", "depends_on": list(depends_on), "config": fields, **own}


async def ran(service: Service, name: str, steps: list[dict[str, Any]], given: object = None) -> dict[str, Any]:
    """The run, ended, as the API shows it."""
    async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
        registered = await client.post("/workflows", json={"name": name, "steps": steps})
        assert registered.status_code == 201, registered.text
        run_id = (await client.post("/runs", json={"workflow": name, "input": given})).json()["run_id"]
        run: dict[str, Any] = (await client.get(f"/runs/{run_id}", params={"wait_ms": 30_000})).json()
        return run


def contents(directory: Path) -> dict[Path, bytes]:
    """Of every file below; the broker replaces some of its own meanwhile."""
    found = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            found[path] = path.read_bytes()
    return found


async def test_requests_follow_one_another_and_a_secret_is_nowhere_else(service: Service) -> None:
    def script(asked: Asked) -> bytes:
        if asked.method == "GET":
            return answer(200, b'{"id": 7, "tags": ["a"]}', content_type="application/json")
        return answer(201, f"seen: {asked.headers['authorization']}".encode(), content_type="text/plain")

    async with web_server(script) as server:
        run = await ran(
            service,
            "follow",
            [
                request("fetch", url="${{ input.base }}/orders/${{ input.order }}"),
                request(
                    "store",
                    "fetch",
                    url="${{ input.base }}/copies",
                    method="POST",
                    headers={"Authorization": "Bearer ${{ secret.KEY }}", "X-From": "${{ input.text }}"},
                    body={"copy": "${{ steps.fetch.output.body }}", "of": "order ${{ steps.fetch.output.body.id }}"},
                    expect=[201],
                ),
            ],
            {"base": server.url(""), "order": 7, "text": "${{ secret.KEY }}"},
        )

    assert run["status"] == "completed"
    assert run["steps"]["store"]["output"]["body"] == "seen: Bearer ***"
    fetched, stored = server.asked
    assert ("GET", "/orders/7") == (fetched.method, fetched.target)
    assert orjson.loads(stored.body) == {"copy": {"id": 7, "tags": ["a"]}, "of": "order 7"}
    assert stored.headers["authorization"] == f"Bearer {SECRET}"
    assert stored.headers["x-from"] == "${{ secret.KEY }}"
    assert stored.headers["idempotency-key"] == f"{run['run_id']}.store"
    files = contents(service.directory)
    assert any(run["run_id"].encode() in body for body in files.values())
    assert [] == [path.name for path, body in files.items() if SECRET.encode() in body]


async def test_a_server_that_is_busy_is_asked_again_with_the_same_key(service: Service) -> None:
    answers = [answer(503), answer(429, retry_after="0"), answer(200, b"done")]
    async with web_server(lambda _: answers.pop(0)) as server:
        retry = {"max_attempts": 3, "initial_delay": "10ms"}
        run = await ran(service, "busy", [request("call", url=server.url(), retry=retry)])

    assert (run["status"], run["steps"]["call"]["output"]["body"]) == ("completed", "done")
    assert [f"{run['run_id']}.call"] * 3 == [asked.headers["idempotency-key"] for asked in server.asked]


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/"],
)
async def test_what_is_not_public_fails_the_step_at_once(service: Service, url: str) -> None:
    run = await ran(service, "metadata", [request("call", url=url, retries=5)])

    assert run["status"] == "failed"
    step = run["steps"]["call"]
    assert step["attempts"] == 1
    assert "may not be reached" in step["error"]


async def test_a_redirect_to_what_is_not_public_fails_the_step_at_once(service: Service) -> None:
    async with web_server(lambda _: answer(302, location="http://169.254.169.254/latest/")) as server:
        run = await ran(service, "redirected", [request("call", url=server.url(), retries=5)])

    assert (run["status"], run["steps"]["call"]["attempts"]) == ("failed", 1)
    assert "169.254.169.254 is link-local, and http_allow does not list it" in run["steps"]["call"]["error"]


async def test_an_unexpected_status_fails_the_step_with_what_the_server_said(service: Service) -> None:
    async with web_server(lambda _: answer(422, b"no such order", content_type="text/plain")) as server:
        run = await ran(service, "refused", [request("call", url=server.url(), retries=5)])

    assert (run["status"], run["steps"]["call"]["attempts"]) == ("failed", 1)
    assert f"GET {server.url()} answered 422 Unprocessable Entity: no such order" in run["steps"]["call"]["error"]


async def test_an_unknown_secret_fails_the_step_and_is_named(service: Service) -> None:
    run = await ran(
        service,
        "unknown",
        [request("call", url="http://127.0.0.1:1/", headers={"X": "${{ secret.OTHER }}"}, retries=5)],
    )

    assert (run["status"], run["steps"]["call"]["attempts"]) == ("failed", 1)
    assert "secret OTHER is unknown" in run["steps"]["call"]["error"]


async def test_the_example_of_the_page_runs(service: Service) -> None:
    section = PAGE.read_text().partition("## HTTP requests")[2]
    definition = orjson.loads(section.partition("```json\n")[2].partition("```")[0])

    def script(asked: Asked) -> bytes:
        if asked.target == "/orders/7":
            return answer(200, b'{"total": 12.5}', content_type="application/json")
        return answer(409)  # made before

    async with web_server(script) as server:
        given = {"shop": server.url(""), "billing": server.url(""), "order": "7"}
        run = await ran(service, definition["name"], definition["steps"], given)

    assert (run["status"], run["steps"]["invoice"]["output"]["status"]) == ("completed", 409)
    assert orjson.loads(server.asked[-1].body) == {"order": "7", "total": 12.5}
    assert server.asked[-1].headers["authorization"] == "Bearer of the page"
