"""API keys: who gets one, what it opens, and how soon a change of them is known everywhere."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control import triggers
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.access.keys import StoredKey, digest_of
from penstock.engine.access.scopes import KeyScope
from penstock.engine.run.event_payloads import ApprovalRequest
from penstock.engine.run.events import ApprovalRequested
from penstock.http.app import create_app
from penstock.http.middleware import key_ring
from penstock.http.middleware.key_ring import KeyRing
from tests.support.conductor import Conductor
from tests.support.waiting import until_true

ODD = ["", " ", "a b", "a/b", "a*", "a>", "a..b", ".a", "a.", "ä", "a\n", "\x00", "x" * 129, "💣", "%2e", "a%00", "*"]
TOKEN = {"Authorization": "Bearer t0ken"}


@pytest.fixture(autouse=True)
async def no_keys(store: Store) -> AsyncIterator[None]:
    """Each test begins without keys, and leaves none to the others of the module."""
    await store.api_keys.change(lambda _: [])
    yield
    await store.api_keys.change(lambda _: [])


@pytest.fixture
async def second(broker_settings: BrokerSettings, http: ASGIConductor) -> AsyncIterator[ASGIConductor]:
    """Another process of the same service, in what it knows."""
    async with Conductor(create_app(Settings(broker=broker_settings))) as conductor:
        yield conductor


@pytest.fixture
async def tokened(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    """A service with SERVICE_API_TOKEN."""
    async with Conductor(create_app(Settings(broker=broker_settings, http=HttpSettings(api_token="t0ken")))) as one:
        yield one


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def ask(http: ASGIConductor, method: str, path: str, body: object = None, key: str | None = None) -> Result:
    content = b"" if body is None else orjson.dumps(body)
    headers = {} if key is None else bearing(key)
    found: Result = await http.simulate_request(method, path, body=content, headers=headers)
    return found


async def created(http: ASGIConductor, name: str, scope: str, by: str | None = None, **more: str) -> str:
    answer = await ask(http, "POST", "/keys", {"name": name, "scope": scope, **more}, by)
    assert 201 == answer.status_code, answer.text
    return str(answer.json["key"])


async def test_the_first_key_closes_the_service_and_opens_it_to_its_holder(http: ASGIConductor) -> None:
    assert 200 == (await ask(http, "GET", "/runs")).status_code
    key = await created(http, "root", "admin")
    refused = await ask(http, "GET", "/runs")
    assert (401, "Bearer") == (refused.status_code, refused.headers["www-authenticate"])
    assert 200 == (await ask(http, "GET", "/runs", key=key)).status_code
    assert 401 == (await ask(http, "GET", "/runs", key=key[:-1])).status_code


@pytest.mark.parametrize("body", [{"scope": "read"}, {"scope": "operate"}, {"scope": "admin", "workflow": "order-*"}])
async def test_the_first_key_must_be_able_to_manage_others(http: ASGIConductor, body: dict[str, str]) -> None:
    refused = await ask(http, "POST", "/keys", {"name": "root", **body})
    assert (409, True) == (refused.status_code, "scope admin" in refused.text)
    assert 200 == (await ask(http, "GET", "/runs")).status_code


async def test_beside_the_token_the_first_key_may_be_of_any_scope(tokened: ASGIConductor) -> None:
    assert 201 == (await tokened.simulate_post("/keys", json={"name": "a", "scope": "read"}, headers=TOKEN)).status_code
    assert 200 == (await tokened.simulate_delete("/keys/a", headers=TOKEN)).status_code


async def test_the_key_is_shown_once_and_stored_nowhere(http: ASGIConductor, store: Store) -> None:
    key = await created(http, "root", "admin", expires="90d")
    listed = await ask(http, "GET", "/keys", key=key)
    (shown,) = listed.json
    assert re.fullmatch(r"penstock_[A-Za-z0-9_-]{43}", key)
    assert {"name": "root", "scope": "admin"} == {name: shown[name] for name in ("name", "scope")}
    assert {"name", "scope", "created_at", "expires_at"} == shown.keys()
    stored = await store.reader.one(names.bucket_stream(names.API_KEYS), names.key_subject(names.API_KEYS, "keys"))
    assert stored is not None
    assert digest_of(key.encode()).encode() in stored.data
    for secret in (key, key.removeprefix("penstock_")):
        assert secret not in listed.text
        assert secret.encode() not in stored.data


@pytest.mark.parametrize("scope", ["read", "operate"])
async def test_only_an_admin_key_manages_keys_and_the_refusal_names_the_scope(http: ASGIConductor, scope: str) -> None:
    root = await created(http, "root", "admin")
    key = await created(http, "ada", scope, root)
    for method, path in (("GET", "/keys"), ("POST", "/keys"), ("DELETE", "/keys/root"), ("POST", "/workflows")):
        refused = await ask(http, method, path, {}, key)
        assert 403 == refused.status_code
        assert f'needs a key of scope admin: that of "ada" is {scope}' in refused.text
    assert 200 == (await ask(http, "GET", "/workflows", key=key)).status_code


async def test_what_is_not_allowed_is_refused_before_anything_else_is_looked_at(http: ASGIConductor) -> None:
    root = await created(http, "root", "admin")
    key = await created(http, "ada", "read", root)
    for method, path in (
        ("POST", "/runs?unknown=1"),
        ("POST", "/runs/nonsense/cancel"),
        ("POST", "/workflows/%20/call"),
        ("DELETE", "/dead-letters/x"),
    ):
        refused = await http.simulate_request(method, path, body=b"{" * 100, headers=bearing(key))
        assert 403 == refused.status_code, refused.text
    assert 405 == (await ask(http, "PATCH", "/runs", key=key)).status_code
    assert 404 == (await ask(http, "POST", "/nowhere", key=key)).status_code


async def test_a_revoked_key_is_refused_by_every_process_within_a_second(
    http: ASGIConductor, second: ASGIConductor
) -> None:
    root = await created(http, "root", "admin")
    key = await created(http, "ada", "read", root)

    async def lets_in() -> bool:
        return (await ask(second, "GET", "/runs", key=key)).status_code == 200

    began_at = time.monotonic()
    while not await lets_in():
        assert time.monotonic() - began_at < 1
        await asyncio.sleep(0)
    assert 200 == (await ask(http, "DELETE", "/keys/ada", key=root)).status_code
    assert 401 == (await ask(http, "GET", "/runs", key=key)).status_code
    began_at = time.monotonic()
    while await lets_in():
        assert time.monotonic() - began_at < 1
        await asyncio.sleep(0)
    assert 200 == (await ask(second, "GET", "/runs", key=root)).status_code


async def test_a_change_is_known_in_time_also_when_its_announcement_is_lost(
    http: ASGIConductor, second: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes read the keys again by themselves."""
    root = await created(http, "root", "admin")
    await store.broker.api(f"STREAM.PURGE.{names.bucket_stream(names.API_KEYS)}")  # nobody is told of a purge
    began_at = time.monotonic()
    while (await ask(second, "GET", "/runs", key="x")).status_code != 200:
        assert time.monotonic() - began_at < 2
        await asyncio.sleep(0.01)
    assert root


async def test_an_expired_key_is_refused_and_does_not_open_the_service(
    http: ASGIConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await created(http, "root", "admin", expires="1h")
    assert 200 == (await ask(http, "GET", "/runs", key=root)).status_code
    later = time.time() + 3601
    monkeypatch.setattr(key_ring.time, "time", lambda: later)
    assert 401 == (await ask(http, "GET", "/runs", key=root)).status_code
    assert 401 == (await ask(http, "GET", "/runs")).status_code


async def test_the_last_admin_key_stays(http: ASGIConductor) -> None:
    root = await created(http, "root", "admin")
    await created(http, "some", "admin", root, workflow="order-*")
    await created(http, "ada", "operate", root)
    refused = await ask(http, "DELETE", "/keys/root", key=root)
    assert (409, True) == (refused.status_code, "SERVICE_API_TOKEN" in refused.text)
    other = await created(http, "other", "admin", root)
    assert 200 == (await ask(http, "DELETE", "/keys/root", key=root)).status_code
    assert 401 == (await ask(http, "GET", "/keys", key=root)).status_code
    assert ["ada", "other", "some"] == [one["name"] for one in (await ask(http, "GET", "/keys", key=other)).json]


async def test_a_name_is_given_once_and_again_after_it_was_revoked(http: ASGIConductor) -> None:
    root = await created(http, "root", "admin")
    first = await created(http, "ada", "read", root)
    assert 409 == (await ask(http, "POST", "/keys", {"name": "ada", "scope": "read"}, root)).status_code
    assert 200 == (await ask(http, "DELETE", "/keys/ada", key=root)).status_code
    assert 404 == (await ask(http, "DELETE", "/keys/ada", key=root)).status_code
    again = await created(http, "ada", "read", root)
    assert [401, 200] == [(await ask(http, "GET", "/runs", key=key)).status_code for key in (first, again)]


async def test_of_concurrent_first_keys_none_that_cannot_manage_others_gets_in_before_one_that_can(
    http: ASGIConductor, store: Store
) -> None:
    bodies: list[dict[str, Any]] = [{"name": f"k{n}", "scope": "admin" if n % 2 else "read"} for n in range(8)]
    answers = await asyncio.gather(*(ask(http, "POST", "/keys", body) for body in bodies))
    made = [body for body, answer in zip(bodies, answers, strict=True) if answer.status_code == 201]
    assert made
    assert {one.name for one in (await store.api_keys.read()).keys} == {body["name"] for body in made}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_name_is_refused_and_quoted(http: ASGIConductor, name: str) -> None:
    refused = await ask(http, "POST", "/keys", {"name": name, "scope": "admin"})
    assert (400, True) == (refused.status_code, refused.text.startswith("name"))
    assert 400 <= (await http.simulate_delete("/keys/" + (name or "%20"))).status_code < 500
    assert 200 == (await ask(http, "GET", "/runs")).status_code


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scope", "root"),
        ("scope", "READ"),
        ("scope", ""),
        ("scope", ["admin"]),
        ("workflow", ""),
        ("workflow", "a b"),
        ("workflow", "[a-z]"),
        ("workflow", "a?"),
        ("workflow", "ä*"),
        ("workflow", "x" * 129),
        ("expires", ""),
        ("expires", "0s"),
        ("expires", "0d"),
        ("expires", "-1d"),
        ("expires", "90"),
        ("expires", "1e9d"),
        ("expires", "9999d"),
        ("expires", "d"),
        ("expires", 90),
        ("name", "SERVICE_API_TOKEN"),
        ("key", "mine"),
    ],
)
async def test_a_bad_field_is_named(http: ASGIConductor, field: str, value: object) -> None:
    refused = await ask(http, "POST", "/keys", {"name": "root", "scope": "admin", field: value})
    assert (400, True) == (refused.status_code, field in refused.text)
    assert 200 == (await ask(http, "GET", "/runs")).status_code


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer  ",
        "bearer penstock_",
        "Bearer \xff\xfe",
        "Bearer penstock_" + "A" * 43,
        "Bearer " + "A" * 7000,
        "Basic cm9vdDo=",
        "Bearer null",
        "Bearer [object Object]",
        "Bearer root",
        "penstock_" + "A" * 43,
    ],
)
async def test_whatever_else_a_header_says_is_401(http: ASGIConductor, header: str) -> None:
    await created(http, "root", "admin")
    answer = await http.simulate_get("/runs", headers={"Authorization": header})
    assert (401, "Bearer") == (answer.status_code, answer.headers["www-authenticate"])


async def test_the_stored_digest_is_no_key(http: ASGIConductor) -> None:
    root = await created(http, "root", "admin")
    assert 401 == (await ask(http, "GET", "/runs", key=digest_of(root.encode()))).status_code


async def test_keys_that_cannot_be_read_leave_known_ones_valid_and_say_nothing_of_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, kept = KeyRing(), StoredKey("ada", KeyScope.READ, digest_of(b"known"), 0.0)
    assert not ring.current
    await store.api_keys.change(lambda _: [kept])
    await ring.read(store.api_keys)
    assert ring.current
    now = time.monotonic() + 60
    monkeypatch.setattr(key_ring.time, "monotonic", lambda: now)
    assert not ring.current
    assert kept == ring.find(b"known")
    assert ring.find(b"other") is None


async def test_a_process_that_lost_its_broker_says_503_to_a_key_that_it_does_not_know(
    http: ASGIConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = await created(http, "root", "admin")
    now = time.monotonic() + 60
    monkeypatch.setattr(KeyRing, "current", property(lambda _: False))
    assert 503 == (await ask(http, "GET", "/runs", key="penstock_new")).status_code
    assert 401 == (await ask(http, "GET", "/runs")).status_code
    assert 200 == (await ask(http, "GET", "/runs", key=root)).status_code
    assert now


async def test_while_it_is_not_known_whether_a_key_is_needed_nobody_is_let_in(
    http: ASGIConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyRing, "current", property(lambda _: False))
    assert 503 == (await ask(http, "GET", "/runs")).status_code
    assert 503 == (await ask(http, "GET", "/runs", key="penstock_new")).status_code


async def test_the_bridge_takes_a_key_of_scope_operate_for_all_workflows(http: ASGIConductor, store: Store) -> None:
    body = {"task_types": ["t"], "max_tasks": 1, "timeout_ms": 0}
    assert 401 == (await ask(http, "POST", "/v1/tasks/poll", body)).status_code
    root = await created(http, "root", "admin")
    for scope, expected in (("read", 403), ("operate", 200), ("admin", 200)):
        key = await created(http, scope, scope, root)
        assert expected == (await ask(http, "POST", "/v1/tasks/poll", body, key)).status_code
    some = await created(http, "some", "operate", root, workflow="one")
    assert 403 == (await ask(http, "POST", "/v1/tasks/poll", body, some)).status_code
    assert 401 == (await ask(http, "POST", "/v1/tasks/poll", body, "x")).status_code
    await until_true(lambda: True)


async def test_the_route_of_a_trigger_takes_a_key_of_scope_operate_for_its_workflow(
    http: ASGIConductor, store: Store
) -> None:
    await triggers.put(
        store, {"name": "keyed", "workflow": "one", "http": {"path": "keyed", "method": "POST", "timeout": "10ms"}}
    )
    root = await created(http, "root", "admin")
    keys = {
        await created(http, "ada", "operate", root): 202,
        await created(http, "one", "operate", root, workflow="on*"): 202,
        await created(http, "two", "operate", root, workflow="two"): 403,
        await created(http, "looker", "read", root): 403,
        root: 202,
        "x": 401,
    }
    answers = [await ask(http, "POST", "/v1/http/keyed", 1, key) for key in keys]
    assert [*keys.values()] == [answer.status_code for answer in answers]
    (started,) = (await ask(http, "GET", f"/runs/{answers[0].json['run_id']}/events", key=root)).json
    assert "ada" == started["payload"]["by"]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shown", ["key", "session"])
async def test_a_stream_ends_when_its_key_is_revoked(http: ASGIConductor, shown: str, again: bool) -> None:
    """Nothing that comes after it is sent, also when another key has been given its name since."""
    root = await created(http, "root", "admin")
    key = await created(http, "ada", "operate", root)
    headers = bearing(key)
    if shown == "session":
        cookie = (await ask(http, "POST", "/session", {"key": key})).headers["set-cookie"].partition(";")[0]
        headers = {"Cookie": cookie}
    run_id = (await ask(http, "POST", "/runs", {"workflow": "one"}, key)).json["run_id"]
    async with following(http, run_id, headers) as stream:
        assert 200 == (await ask(http, "DELETE", "/keys/ada", key=root)).status_code
        if again:
            await created(http, "ada", "operate", root)
        assert 200 == (await ask(http, "POST", f"/runs/{run_id}/signal/late", 1, root)).status_code
        assert b"signal.received" not in await rest(stream)


async def test_a_stream_of_an_open_service_ends_when_a_key_is_needed(http: ASGIConductor) -> None:
    run_id = (await ask(http, "POST", "/runs", {"workflow": "one"})).json["run_id"]
    async with following(http, run_id, {}) as stream:
        assert 200 == (await ask(http, "POST", f"/runs/{run_id}/signal/early", 1)).status_code
        found = b""
        while b"signal.received" not in found:
            found += await stream.stream.read()
        root = await created(http, "root", "admin")
        assert 200 == (await ask(http, "POST", f"/runs/{run_id}/signal/late", 1, root)).status_code
        assert b"signal.received" not in await rest(stream)


@asynccontextmanager
async def following(http: ASGIConductor, run_id: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    """The stream of a run's events, behind the first one."""
    accept = {"Accept": "text/event-stream"}
    async with http.simulate_get_stream(f"/runs/{run_id}/events", headers={**headers, **accept}) as stream:
        found = b""
        while b"workflow.started" not in found:
            found += await stream.stream.read()
        yield stream


async def rest(stream: Any) -> bytes:
    """What a stream still brings until it ends."""
    found = b""
    while more := await stream.stream.read():
        found += more
    return found


async def test_the_token_of_an_approval_is_masked_for_who_may_only_read(http: ASGIConductor, store: Store) -> None:
    token = "5ecret" * 8
    root = await created(http, "root", "admin")
    keys = {scope: await created(http, scope, scope, root) for scope in ("read", "operate")}
    run_id = (await ask(http, "POST", "/runs", {"workflow": "one"}, root)).json["run_id"]
    request = ApprovalRequest(token=token, expires_at="2099-01-01T00:00:00Z", description="ask")
    event = ApprovalRequested(run_id=run_id, step_id="a", timestamp="2026-01-01T00:00:00Z", payload=request)
    await store.history.append(event)
    await ask(http, "POST", f"/runs/{run_id}/cancel", key=root)
    last = (await ask(http, "GET", f"/runs/{run_id}/events", key=root)).json[-1]["seq"]
    for scope, shown in (("read", False), ("operate", True)):
        for accept in ("application/json", "text/event-stream"):
            headers = {**bearing(keys[scope]), "Accept": accept}
            answer = await http.simulate_get(f"/runs/{run_id}/events", headers=headers)
            assert "approval.requested" in answer.text
            assert (shown, not shown) == (token in answer.text, "***" in answer.text)
            assert "2099-01-01T00:00:00Z" in answer.text
        for path in ("/export", f"?at={last}", ""):
            answer = await http.simulate_get(f"/runs/{run_id}{path}", headers=bearing(keys[scope]))
            assert (200, shown and path == "/export") == (answer.status_code, token in answer.text), path
