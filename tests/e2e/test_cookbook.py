"""Every page of docs/cookbook, carried out: its definitions, its worker and its requests, line by line. So are calls on
other pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.client import AsyncClient
from penstock.worker import Worker
from tests.support.pages import DOCS, carry_out, carry_out_page
from tests.support.service import Service
from tests.support.web_server import Asked, answer, web_server

COOKBOOK = DOCS / "cookbook"
RECIPES = sorted(path.name for path in COOKBOOK.glob("*.md") if path.name != "README.md")
DEFINITION = re.compile(r"```json\n(\{.*?\n\})\n```", re.DOTALL)
WORKER = re.compile(r"```python\n(.*?)^worker\.run\(\)\n```", re.DOTALL | re.MULTILINE)
API = "https://api.example.com"
SECRET = "geheim-4711"

pytestmark = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="no curl or jq here")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(
        tmp_path_factory.mktemp("cookbook") / "service",
        {"PENSTOCK_SECRET_RATES_TOKEN": SECRET},
        shards=1,
        http_workers=1,
        builtin_workers="http",
        http_allow="127.0.0.1",
    ) as started:
        yield started


@asynccontextmanager
async def external_api() -> Any:
    """Has the rate of one currency, and is busy when it is asked first. Yields its address."""
    answers = [answer(503), answer(200, b'{"rate": 0.92}', content_type="application/json")]

    def script(asked: Asked) -> bytes:
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        return answers.pop(0) if asked.target == "/rates/EUR" else answer(404)

    async with web_server(script) as server:
        yield server.url("")


def worker_of(text: str, service: Service) -> Worker:
    """The worker of the page, as it is before `worker.run()`."""
    (code,) = WORKER.findall(text)
    names: dict[str, Any] = {}
    exec(compile(code.replace("http://localhost:8080", service.url), "worker.py", "exec"), names)
    worker = names["worker"]
    assert isinstance(worker, Worker)
    return worker


def save_definitions(text: str, folder: Path) -> None:
    for found in DEFINITION.findall(text):
        (folder / f"{orjson.loads(found)['name']}.json").write_text(found)


@pytest.mark.parametrize("page", RECIPES)
async def test_a_recipe_does_what_its_page_shows(
    service: Service, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (COOKBOOK / page).read_text()
    monkeypatch.setenv("SERVICE_BROKER_URL", service.broker_url)
    async with external_api() as address, worker_of(text, service).running():
        save_definitions(text.replace(API, address), tmp_path)
        shown = await carry_out_page(f"cookbook/{page}", service.url, tmp_path)

    assert shown.printed == shown.page


def test_the_index_has_every_recipe_once() -> None:
    index = (COOKBOOK / "README.md").read_text()

    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == RECIPES


async def test_the_page_on_http_shows_what_a_call_answers(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (DOCS.parent / "README.md").read_text()
    monkeypatch.setenv("SERVICE_BROKER_URL", service.broker_url)
    async with worker_of(readme, service).running():
        await registered(service, readme, "greet")
        shown = await carry_out("http.md", "/call", service.url)

    assert shown.printed == shown.page


async def test_the_page_on_triggers_shows_what_a_request_to_a_route_answers(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_BROKER_URL", service.broker_url)
    worker = Worker()
    worker.task("check-name")(lambda name: name)
    async with worker.running():
        await registered(service, (DOCS / "triggers.md").read_text(), "signup")
        shown = await carry_out("triggers.md", "/v1/http/", service.url)

    assert shown.printed == shown.page


async def test_a_response_of_a_child_answers_nobody(service: Service) -> None:
    respond = {"id": "say", "type": "respond", "config": {"status": 418, "body": "from the child"}}
    child = {"id": "child", "type": "sub_workflow", "config": {"workflow": "inner"}}
    async with AsyncClient(service.url) as client:
        await client.register(orjson.dumps({"name": "inner", "steps": [respond]}))
        await client.register(orjson.dumps({"name": "outer", "steps": [child]}))
        answer = await client.call("outer", b"null")

    assert (answer.status, answer.outcome, answer.body) == (200, "completed", b'"from the child"')


async def registered(service: Service, page: str, name: str) -> None:
    """The definition of this name on the page."""
    (found,) = [text for text in DEFINITION.findall(page) if orjson.loads(text).get("name") == name]
    async with AsyncClient(service.url) as client:
        await client.register(found.encode())
