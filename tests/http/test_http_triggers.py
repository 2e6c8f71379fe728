"""Triggers of kind http: a request to their route starts a run and is answered with what it gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import triggers
from penstock.actors.triggers import routes
from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.errors import Conflict
from penstock.engine.trigger.trigger import parse as parse_trigger
from penstock.http.app import create_app
from tests.http.test_calls import begun, complete
from tests.support.conductor import Conductor

SECRET = "letmein"
RIGHT = {"Authorization": f"Bearer {SECRET}"}


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    """The application with an API token."""
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token=SECRET))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


def trigger(path: str, name: str = "web", **http: Any) -> dict[str, Any]:
    return {"name": name, "workflow": http.pop("workflow", "one"), "http": {"path": path, "auth": "none", **http}}


async def asked(http: ASGIConductor, method: str, path: str, **options: Any) -> Result:
    return await http.simulate_request(method, path, **options)


async def answered(
    http: ASGIConductor, store: Store, method: str, path: str, output: bytes = b"1", **options: Any
) -> tuple[Result, dict[str, Any]]:
    """The answer to a request whose run completes, and the run."""
    before = await store.history.last_seq()
    task = asyncio.create_task(asked(http, method, path, **options))
    run_id = await begun(http, task, store, before)
    await complete(store, run_id, output)
    done = await task
    return done, (await http.simulate_get(f"/runs/{run_id}", headers=RIGHT)).json


async def test_a_request_starts_a_run_and_is_answered_with_its_output(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, trigger("orders/new"))
    done, run = await answered(
        http,
        store,
        "POST",
        "/v1/http/orders/new?a=1&b=2&b=3",
        b'{"n":1}',
        body=b'{"price": 1.10}',
        headers={"X-Sender": "Ada", "Cookie": "a=b", "Authorization": "Bearer x"},
    )
    assert (200, b'{"n":1}', f"/runs/{run['run_id']}") == (done.status_code, done.content, done.headers["location"])
    given = run["input"]
    assert ("POST", "orders/new", {"a": "1", "b": ["2", "3"]}, {"price": 1.10}) == (
        given["method"],
        given["path"],
        given["query"],
        given["body"],
    )
    assert "Ada" == given["headers"]["x-sender"]
    assert not {"cookie", "authorization"} & given["headers"].keys()
    assert ("web", "http") == (run["trigger"]["name"], run["trigger"]["kind"])


@pytest.mark.parametrize(
    ("body", "value"), [(b"", None), (b"null", None), (b"a=b", "a=b"), (b"\xff", "�"), (b"[1", "[1"), (b"3", 3)]
)
async def test_a_body_that_is_no_json_is_text(http: ASGIConductor, store: Store, body: bytes, value: object) -> None:
    await triggers.put(store, trigger("texts", method="PUT"))
    _, run = await answered(http, store, "PUT", "/v1/http/texts", body=body)
    assert value == run["input"]["body"]


async def test_an_input_of_the_triggers_own_takes_the_place_of_the_request(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, {**trigger("own", name="own"), "input": [1]})
    _, run = await answered(http, store, "POST", "/v1/http/own", body=b"2")
    assert [1] == run["input"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "exact"),
        ("HEAD", "exact"),
        ("POST", "exact/"),
        ("POST", "exact/more"),
        ("POST", "Exact"),
        ("POST", ""),
        ("POST", "%65xact/.."),
    ],
)
async def test_only_the_exact_route_is_there(http: ASGIConductor, store: Store, method: str, path: str) -> None:
    await triggers.put(store, trigger("exact", name="exact"))
    assert 404 == (await asked(http, method, f"/v1/http/{path}")).status_code


async def test_a_trigger_that_is_disabled_or_gone_has_no_route(http: ASGIConductor, store: Store) -> None:
    document = trigger("going", name="going", timeout="1s")
    await triggers.put(store, {**document, "enabled": False})
    assert 404 == (await asked(http, "POST", "/v1/http/going")).status_code
    await triggers.put(store, document)
    assert 202 == (await asked(http, "POST", "/v1/http/going")).status_code
    await triggers.delete(store, "going")
    assert 404 == (await asked(http, "POST", "/v1/http/going")).status_code


async def test_two_triggers_for_one_route_are_409(http: ASGIConductor, store: Store) -> None:
    def put(name: str, **how: Any) -> Any:
        return http.simulate_post("/triggers", body=orjson.dumps(trigger("shared", name=name, **how)))

    assert 201 == (await put("first")).status_code
    assert 201 == (await put("first", timeout="5s")).status_code
    refused = await put("second")
    assert (409, 'the route POST shared is that of trigger "first"\n') == (refused.status_code, refused.text)
    assert 404 == (await http.simulate_get("/triggers/second")).status_code
    assert 201 == (await put("second", method="GET")).status_code
    assert 201 == (await put("first", method="PUT")).status_code
    assert 201 == (await put("third")).status_code
    await triggers.delete(store, "third")
    assert 201 == (await put("fourth")).status_code


async def test_a_route_of_a_process_that_died_is_free(store: Store, definitions: None) -> None:
    found = parse_trigger(trigger("crashed", name="dead"))
    await routes.take(store, found)  # and dies before the trigger is written
    assert "alive" == (await triggers.put(store, trigger("crashed", name="alive"))).trigger.name
    with pytest.raises(Conflict):
        await routes.take(store, found)


async def test_of_many_at_once_one_gets_the_route(store: Store, definitions: None) -> None:
    names = [f"rival{number}" for number in range(8)]
    found = await asyncio.gather(
        *(triggers.put(store, trigger("contested", name=name)) for name in names), return_exceptions=True
    )
    assert 7 == sum(isinstance(one, Conflict) for one in found)
    winner = await routes.trigger_of(store, "POST contested")
    assert winner is not None
    assert [winner.name] == [name for name, one in zip(names, found, strict=True) if not isinstance(one, Conflict)]
    assert [winner.name] == [one.trigger.name for one in await triggers.get_all(store) if one.trigger.name in names]


async def test_the_default_needs_the_api_token(guarded: ASGIConductor, store: Store) -> None:
    await triggers.put(store, {"name": "tok", "workflow": "one", "http": {"path": "tok", "timeout": "1s"}})
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {SECRET}"}):
        refused = await asked(guarded, "POST", "/v1/http/tok", headers=headers)
        assert (401, "Bearer") == (refused.status_code, refused.headers["www-authenticate"])
    done, run = await answered(guarded, store, "POST", "/v1/http/tok", headers=RIGHT)
    assert (200, False) == (done.status_code, SECRET in str(run))


async def test_without_an_api_token_the_default_lets_nobody_in(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, {"name": "tok", "workflow": "one", "http": {"path": "tok"}})
    assert 401 == (await asked(http, "POST", "/v1/http/tok", headers=RIGHT)).status_code
    assert 401 == (await asked(http, "POST", "/v1/http/tok")).status_code


async def test_a_body_over_1_mib_is_413_and_starts_nothing(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, trigger("large", name="large"))
    before = await store.history.last_seq()
    for size in (PAYLOAD_BYTES_MAX + 1, PAYLOAD_BYTES_MAX):  # with its headers, the second is over the limit, too
        assert 413 == (await asked(http, "POST", "/v1/http/large", body=b"1" * size)).status_code
    assert before == await store.history.last_seq()


async def test_a_key_is_one_of_the_triggers_own(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, trigger("keyed", name="keyed"))
    key = {"Idempotency-Key": "k-trigger"}
    done, run = await answered(http, store, "POST", "/v1/http/keyed", b"[1]", headers=key)
    again = await asked(http, "POST", "/v1/http/keyed", headers=key, body=b"other")
    assert (done.content, done.headers["location"]) == (again.content, again.headers["location"])
    started = await http.simulate_post("/runs", body=b'{"workflow":"one"}', headers=key)
    assert run["run_id"] != started.json["run_id"]


async def test_its_schema_and_its_time_are_those_of_a_call(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, trigger("typed", name="typed", workflow="typed"))
    refused = await asked(http, "POST", "/v1/http/typed")
    assert (400, True) == (refused.status_code, "input" in refused.text)
    await triggers.put(store, trigger("short", name="short", timeout="50ms"))
    done = await asked(http, "POST", "/v1/http/short")
    assert (202, "running") == (done.status_code, done.headers["penstock-outcome"])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"path": "a//b"}, "http: path must be names"),
        ({"path": "a/"}, "http: path must be names"),
        ({"path": "../a"}, "http: path must be names"),
        ({"path": "a/{id}"}, "http: path must be names"),
        ({"path": ""}, "http: path must be names"),
        ({"path": 1}, "http: path must be names"),
        ({"path": "a" * 257}, "has 257 characters, 256 is the most"),
        ({"path": "a", "method": "HEAD"}, "http: method must be one of GET POST PUT PATCH DELETE"),
        ({"path": "a", "auth": "basic"}, "http: auth must be one of token none"),
        ({"path": "a", "timeout": "301s"}, "http: timeout 301s is too long, 5m is the most"),
        ({"path": "a", "timeout": "x"}, "http: timeout"),
        ({}, "http: path is missing"),
    ],
)
async def test_a_wrong_route_is_400(http: ASGIConductor, fields: dict[str, Any], problem: str) -> None:
    document = {"name": "bad", "workflow": "one", "http": fields}
    refused = await http.simulate_post("/triggers", body=orjson.dumps(document))
    assert (400, True) == (refused.status_code, problem in refused.text), refused.text


async def test_what_is_shown_can_be_given_back(http: ASGIConductor, store: Store) -> None:
    await triggers.put(store, trigger("/slash", name="slash", timeout="90s"))
    shown = await http.simulate_get("/triggers/slash")
    assert {"path": "slash", "auth": "none", "timeout": "1m30s"} == shown.json["http"]
    again = await http.simulate_put("/triggers/slash", body=shown.content)
    assert (200, shown.json) == (again.status_code, again.json)
    trial = await http.simulate_post("/triggers/slash/test", body=b"1")
    assert trial.json["would_start"]
