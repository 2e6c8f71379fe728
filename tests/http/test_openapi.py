"""The document of the API says what the application does: its routes, its bodies, its rules, its refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import structs
from openapi_spec_validator import OpenAPIV31SpecValidator

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.validation import parse
from penstock.http.app import create_app
from penstock.http.openapi.document import document, path_parameters, refused
from penstock.http.openapi.operations.operation import Access, Operation
from penstock.http.openapi.operations.workflows import GREET
from penstock.http.openapi.schemas import RULES
from penstock.http.openapi.table import OPERATIONS
from penstock.http.openapi.texts import TEXTS
from tests.support.conductor import Conductor
from tests.support.routes import is_page
from tests.support.schemas import validator

TOKENS = HttpSettings(api_token="s3cret", bridge_token="br1dge")
FREE_MOMENTS = {"TriggerDocument", "NamedTriggerDocument"}  # ignored there, whatever they are
BEARER = {Access.API: {"Authorization": "Bearer s3cret"}, Access.BRIDGE: {"Authorization": "Bearer br1dge"}}


def _json() -> dict[str, Any]:
    """A copy of what is answered."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(document(), option=orjson.OPT_NON_STR_KEYS))
    return found


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[ASGIConductor]:
    """The application with every token set, and the workflow of the examples."""
    await store.definitions.register(parse(GREET))
    async with Conductor(create_app(Settings(broker=broker_settings, http=TOKENS))) as conductor:
        yield conductor


def routes() -> Iterator[tuple[str, str, Any]]:
    """Path, method and responder of whatever the application answers."""
    waiting = list(create_app(Settings())._router._roots)
    while waiting:
        node = waiting.pop()
        waiting += node.children
        for method, responder in (node.method_map or {}).items():
            is_ours = getattr(responder, "__self__", None) is not None and not is_page(node.uri_template or "")
            if is_ours and method != "HEAD":
                yield node.uri_template, method.lower(), responder.__func__


def test_every_route_has_its_row_and_every_row_its_route() -> None:
    expected = {(path, method): responder for path, method, responder in routes()}

    assert expected == {(one.path, one.method): one.responder for one in OPERATIONS}


def test_the_document_is_valid_openapi_3_1() -> None:
    found = _json()

    OpenAPIV31SpecValidator(found).validate()

    del found["paths"]["/runs"]["get"]["responses"]
    assert list(OpenAPIV31SpecValidator({**found, "info": {}}).iter_errors())


def test_names_of_operations_differ_and_summaries_are_sentences() -> None:
    names = [one.name for one in OPERATIONS]

    assert len(names) == len(set(names))
    for one in OPERATIONS:
        summary = one.responder.__doc__
        assert summary.endswith("."), one.name
        assert "\n" not in summary, one.name


def test_every_component_is_used() -> None:
    text = orjson.dumps(document(), option=orjson.OPT_NON_STR_KEYS).decode()

    for kind in ("schemas", "responses", "headers"):
        unused = [name for name in document()["components"][kind] if f'"#/components/{kind}/{name}"' not in text]
        assert [] == unused


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_example_fits_its_schema(operation: Operation) -> None:
    for parameter in (*path_parameters(operation), *operation.parameters):
        validator(parameter.schema).validate(parameter.value)
    if operation.body is not None:
        ((media, described),) = document()["paths"][operation.path][operation.method]["requestBody"]["content"].items()
        assert ("application/octet-stream" if operation.body.shape is None else "application/json") == media
        validator(described["schema"]).validate(described["example"])


def test_every_operation_is_described_beyond_its_summary() -> None:
    for one in OPERATIONS:
        described = document()["paths"][one.path][one.method]
        assert described["description"].endswith("."), one.name
        assert described["description"] not in described["summary"], one.name
    assert {one.name for one in OPERATIONS} == TEXTS.keys()


def _inside(value: object) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _inside(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _inside(inner)


def test_no_field_of_a_body_has_a_default_which_generated_clients_would_ask_for() -> None:
    for schema in _inside(document()["components"]["schemas"]):
        if isinstance(schema.get("properties"), dict):
            assert [] == [
                name for name, one in schema["properties"].items() if isinstance(one, dict) and "default" in one
            ]


def test_every_moment_is_a_date_time() -> None:
    for name, schema in document()["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            if (
                field.endswith("_at") or field in ("at", "timestamp", "last_seen", "before", "after")
            ) and name not in FREE_MOMENTS:
                assert "date-time" in orjson.dumps(one).decode(), (name, field)


async def test_it_is_answered_without_a_token(guarded: ASGIConductor) -> None:
    answer = await guarded.simulate_get("/openapi.json")

    assert (200, "application/json") == (answer.status_code, answer.headers["content-type"])
    assert _json() == answer.json


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.access is not Access.SIGN_IN], ids=lambda one: one.name
)
async def test_who_shows_nothing_is_refused_where_the_document_says_so(
    guarded: ASGIConductor, operation: Operation
) -> None:
    await _trigger(guarded)
    answer = await _ask(
        guarded, operation, headers={}, query={"token": "none"} if operation.access is Access.APPROVAL else {}
    )

    # Of what does not exist, whoever has no account of it learns no more than that.
    expected = {404} if operation.access is Access.APPROVAL else {401}
    assert (answer.status_code in expected) == (operation.access is not Access.OPEN)
    assert answer.status_code in {*operation.answers, *refused(operation)}


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.parameters], ids=lambda one: one.name)
async def test_every_parameter_is_known_and_no_other(guarded: ASGIConductor, operation: Operation) -> None:
    token = {"token": "none"} if operation.access is Access.APPROVAL else {}

    known = await _ask(guarded, operation, query=token)
    assert "unknown query parameter" not in known.text

    if any(one.place == "query" for one in operation.parameters):
        stranger = await _ask(guarded, operation, query={**token, "colour": "red"})
        assert (400, True) == (stranger.status_code, 'unknown query parameter "colour"' in stranger.text)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
async def test_an_unknown_query_parameter_is_named_on_the_control_plane_and_ignored_by_probes_and_webhooks(
    guarded: ASGIConductor, operation: Operation
) -> None:
    if operation.access in (Access.BRIDGE, Access.APPROVAL):
        return
    answer = await _ask(guarded, operation, query={"colour": "red"})
    named = 'unknown query parameter "colour"' in answer.text
    assert (operation.access is Access.API) == named == (answer.status_code == 400)


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.body and isinstance(one.body.shape, type)], ids=lambda one: one.name
)
async def test_every_rule_of_a_field_is_kept(guarded: ASGIConductor, operation: Operation) -> None:
    """A value beyond what the schema of a request allows is refused, and its field named."""
    assert operation.body is not None
    token = {"token": "t"} if operation.access is Access.APPROVAL else {}
    for field, rule in RULES.get(operation.body.shape, {}).items():
        for value in _beyond(rule):
            assert not validator(_field(operation, field)).is_valid(value)
            answer = await _ask(guarded, operation, body={**_acting(operation, field), field: value}, query=token)
            assert 400 == answer.status_code, (field, value, answer.text)
            assert field.removesuffix("_id") in answer.text or "action" in answer.text


def test_every_rule_is_of_a_field_that_exists() -> None:
    for kind, rules in RULES.items():
        assert set() == rules.keys() - {field.encode_name for field in structs.fields(kind)}


def _field(operation: Operation, field: str) -> Any:
    assert operation.body is not None
    described = document()["paths"][operation.path][operation.method]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    return document()["components"]["schemas"][described["$ref"].rpartition("/")[2]]["properties"][field]


def _acting(operation: Operation, field: str) -> dict[str, Any]:
    """The example, changed so that the field counts."""
    assert operation.body is not None
    example: Any = deepcopy(operation.body.example)
    needing = {
        "retry_after_ms": {"action": "fail", "error": "x"},
        "attempt": {"action": "fail", "error": "x"},
        "iteration": {"action": "fail", "error": "x"},
        "duration_ms": {"action": "pause"},
        "name": {"action": "pause", "duration_ms": 1},
        "id": {"action": "log", "data": [{"text": "x"}]},
        "dropped": {"action": "stream", "data": "x"},
    }
    return {**example, **needing.get(field, {})} if operation.name == "resolveTask" else example


def _beyond(rule: Any) -> Iterator[object]:
    """Values that break the rule."""
    match rule:
        case {"$ref": "#/components/schemas/Name"}:
            yield from ("a b", "x" * 129, ".a")
        case {"enum": _}:
            yield "sorcery"
        case {"type": "integer", "minimum": least, "maximum": most}:
            yield from (least - 1, most + 1)
        case {"type": "array", "items": {"$ref": _}, "maxItems": most}:
            yield from ([], ["a"] * (most + 1), ["a b"])
        case {"minItems": _, "maxItems": most}:
            yield from ([], [1] * (most + 1))
        case {"format": "date-time"}:
            yield from ("tomorrow", "2026-11-21")
        case {"maxLength": most}:
            yield "x" * (most + 1)


async def _trigger(http: ASGIConductor) -> None:
    """The webhook of the example is there."""
    body = {"workflow": "greet", "webhook": {"secret": "s"}}
    assert 200 == (await http.simulate_put("/triggers/push", json=body, headers=BEARER[Access.API])).status_code


async def _ask(
    http: ASGIConductor, operation: Operation, *, headers: Any = None, query: Any = (), body: Any = None
) -> Any:
    """The operation's example, with these changes. A stream is not waited for."""
    path = operation.path
    for parameter in path_parameters(operation):
        path = path.replace(f"{{{parameter.name}}}", parameter.example)
    named = {one.name: one.example for one in operation.parameters}
    asked = {one.name: one.example for one in operation.parameters if one.place == "query"} | dict(query)
    given = BEARER.get(operation.access, {}) if headers is None else headers
    given = given | {one.name: named[one.name] for one in operation.parameters if one.place == "header"}
    content = operation.body.example if operation.body and body is None else body
    return await http.simulate_request(
        operation.method.upper(),
        path,
        params=asked,
        headers=given,
        body=orjson.dumps(content) if operation.body else None,
    )
