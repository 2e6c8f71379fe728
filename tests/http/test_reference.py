"""/docs: one page that needs nothing else, whatever stands in the document that it shows; and what is sent as it is."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from penstock.http.openapi.definition_schema import definition_schema
from penstock.http.openapi.document import document
from penstock.http.openapi.page import page, render
from penstock.http.openapi.table import OPERATIONS
from tests.support.conductor import Conductor
from tests.support.service import free_port

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"
LOADING = {"script", "img", "iframe", "object", "embed", "audio", "video", "source", "base", "form", "svg", "input"}
VOID = {"meta", "link", "br"}


class Seen(HTMLParser):
    """What a browser would find. Fails for tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self._open = "", list[str]()
        self.feed(text)
        self.close()
        assert [] == self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[str]:
        """The values of this attribute."""
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


async def test_they_are_there_without_a_token_and_without_a_broker() -> None:
    away = BrokerSettings(url=f"nats://127.0.0.1:{free_port()}")
    async with Conductor(create_app(Settings(broker=away, http=HttpSettings(api_token="s3cret")))) as http:
        for path in ("/docs", "/openapi.json", "/schemas/definition.json"):
            answer = await http.simulate_get(path)
            assert 200 == answer.status_code
            assert "nosniff" == answer.headers["x-content-type-options"]
            assert 401 == (await http.simulate_get(path + "x")).status_code


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/schemas/definition.json"])
async def test_a_client_that_has_it_already_gets_304(http: ASGIConductor, path: str) -> None:
    first = await http.simulate_get(path)
    tag = first.headers["etag"]

    again = await http.simulate_get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    other = await http.simulate_get(path, headers={"If-None-Match": '"other"'})

    assert "no-cache" == first.headers["cache-control"]
    assert (304, b"", tag) == (again.status_code, again.content, again.headers["etag"])
    assert (200, first.content) == (other.status_code, other.content)


async def test_the_schema_of_definitions_is_the_one_that_the_command_prints(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/schemas/definition.json")

    assert (200, "application/json") == (answer.status_code, answer.headers["content-type"])
    assert definition_schema() == answer.json


def test_the_page_shows_every_operation_and_every_schema() -> None:
    seen = Seen(render().decode())

    anchors = seen.all("id")
    assert {one.name for one in OPERATIONS} < set(anchors)
    assert {f"schema-{name}" for name in document()["components"]["schemas"]} < set(anchors)
    assert len(anchors) == len(set(anchors))
    for one in OPERATIONS:
        assert one.responder.__doc__.replace("`", "") in seen.text


def test_every_link_of_the_page_leads_somewhere() -> None:
    seen = Seen(render().decode())

    targets = {f"#{anchor}" for anchor in seen.all("id")} | {"/openapi.json"}
    assert set() == set(seen.all("href")) - targets


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = render().decode()
    seen = Seen(text)

    assert set() == {tag for tag, _ in seen.tags} & (LOADING | {"link"})
    assert [] == [
        value
        for _, attributes in seen.tags
        for value in attributes
        if value.startswith("on") or value in ("src", "style")
    ]
    assert [] == re.findall(r"https?://|//[a-z]|@import|url\(", text)


async def test_its_policy_allows_its_own_style_only(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/docs")

    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert {"default-src": "'none'", "style-src": f"'sha256-{digest}'"} == {
        name: policy[name] for name in ("default-src", "style-src")
    }
    assert ["'none'"] * 3 == [policy[name] for name in ("base-uri", "form-action", "frame-ancestors")]


def test_nothing_in_the_document_becomes_html() -> None:
    evil = _spoiled(orjson.loads(orjson.dumps(document(), option=orjson.OPT_NON_STR_KEYS)))
    plain, seen = Seen(render().decode()), Seen(page(evil))

    assert {tag for tag, _ in plain.tags} == {tag for tag, _ in seen.tags}
    assert {name for _, attributes in plain.tags for name in attributes} == {
        name for _, attributes in seen.tags for name in attributes
    }
    assert EVIL in seen.text


def _spoiled(value: Any, key: str = "") -> Any:
    """The document with something evil in every text that is for people, every example, and every name that is free."""
    match value:
        case dict() if key in ("properties", "schemas", "securitySchemes", "content", "paths"):
            return {name + (EVIL if "/json" not in name else ""): _spoiled(found) for name, found in value.items()}
        case dict():
            return {name: _spoiled(found, name) for name, found in value.items()}
        case list():
            return [_spoiled(found, key) for found in value]
        case str() if key in (
            "description",
            "summary",
            "title",
            "version",
            "example",
            "pattern",
            "default",
            "const",
            "enum",
            "operationId",
        ):
            return value + EVIL
        case _:
            return value
