"""Sign-ins by a browser: a cookie that stands for a key."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import SESSION_CHECK_S, SESSION_S
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from penstock.http.middleware import key_ring, sessions
from tests.support.conductor import Conductor

TOKEN = "t0ken"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, store: Store, definitions: None) -> AsyncIterator[ASGIConductor]:
    await store.api_keys.change(lambda _: [])
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token=TOKEN, bridge_token="br1dge"))
    async with Conductor(create_app(settings)) as one:
        yield one
    await store.api_keys.change(lambda _: [])


@pytest.fixture
async def second(broker_settings: BrokerSettings, guarded: ASGIConductor) -> AsyncIterator[ASGIConductor]:
    async with Conductor(create_app(Settings(broker=broker_settings, http=HttpSettings(api_token=TOKEN)))) as one:
        yield one


async def ask(http: ASGIConductor, method: str, path: str, body: object = None, **headers: str) -> Result:
    content = b"" if body is None else orjson.dumps(body)
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    found: Result = await http.simulate_request(method, path, body=content, headers=shown)
    return found


async def key_of(http: ASGIConductor, name: str, scope: str, **more: str) -> str:
    answer = await ask(http, "POST", "/keys", {"name": name, "scope": scope, **more}, **ADMIN)
    assert 201 == answer.status_code, answer.text
    return str(answer.json["key"])


async def signed_in(http: ASGIConductor, key: str, **headers: str) -> tuple[str, dict[str, Any]]:
    """The cookie as a browser sends it, and the answer."""
    answer = await ask(http, "POST", "/session", {"key": key}, **headers)
    assert 201 == answer.status_code, answer.text
    return answer.headers["set-cookie"].partition(";")[0], answer.json


async def test_a_key_gives_a_cookie_that_stands_for_it(guarded: ASGIConductor, store: Store) -> None:
    key = await key_of(guarded, "ada", "operate", workflow="o*")
    answer = await ask(guarded, "POST", "/session", {"key": key})
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={int(SESSION_S)}"} == set(attributes)
    assert {"name": "ada", "scope": "operate", "workflow": "o*"} == {
        field: answer.json[field] for field in ("name", "scope", "workflow")
    }
    shown = await ask(guarded, "GET", "/session", Cookie=name)
    assert {**answer.json} == {**shown.json, "expires_at": answer.json["expires_at"]}
    assert 200 == (await ask(guarded, "GET", "/workflows/one", Cookie=name)).status_code
    assert 403 == (await ask(guarded, "GET", "/workflows/two", Cookie=name)).status_code
    cookie = name.partition("=")[2]
    for entry in await store.sessions.all():
        assert cookie not in entry.key
        assert cookie.encode() not in entry.value
        assert key.encode() not in entry.value


@pytest.mark.parametrize(
    "headers", [{"X_Forwarded_Proto": "https"}, {"Origin": "https://127.0.0.1"}], ids=["proxy", "page"]
)
async def test_the_cookie_is_for_tls_alone_where_there_is_tls(guarded: ASGIConductor, headers: dict[str, str]) -> None:
    answer = await ask(guarded, "POST", "/session", {"key": TOKEN}, **headers)
    assert 201 == answer.status_code
    assert answer.headers["set-cookie"].startswith("__Host-penstock_session=")
    assert "Secure" in answer.headers["set-cookie"].split("; ")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert 200 == (await ask(guarded, "GET", "/keys", Cookie=cookie)).status_code


async def test_a_change_with_the_cookie_needs_the_token_that_belongs_to_it(guarded: ASGIConductor) -> None:
    cookie, shown = await signed_in(guarded, TOKEN)
    _, other = await signed_in(guarded, TOKEN)
    start = ("POST", "/runs", {"workflow": "one"})
    for wrong in ({}, {"X_CSRF_Token": ""}, {"X_CSRF_Token": other["csrf_token"]}, {"X_CSRF_Token": "\xff"}):
        refused = await ask(guarded, *start, Cookie=cookie, **wrong)
        assert (403, True) == (refused.status_code, "X-CSRF-Token" in refused.text)
    assert 403 == (await ask(guarded, "DELETE", "/session", Cookie=cookie)).status_code
    assert 201 == (await ask(guarded, *start, Cookie=cookie, X_CSRF_Token=shown["csrf_token"])).status_code
    foreign = {"Origin": "https://evil.example", "X_CSRF_Token": shown["csrf_token"]}
    assert 403 == (await ask(guarded, *start, Cookie=cookie, **foreign)).status_code


async def test_a_cookie_that_is_sent_again_after_the_sign_out_is_refused_everywhere(
    guarded: ASGIConductor, second: ASGIConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie, shown = await signed_in(guarded, TOKEN)
    for http in (guarded, second):
        assert 200 == (await ask(http, "GET", "/runs/stats", Cookie=cookie)).status_code
    done = await ask(guarded, "DELETE", "/session", Cookie=cookie, X_CSRF_Token=shown["csrf_token"])
    assert (200, "") == (done.status_code, done.cookies["penstock_session"].value)
    assert 401 == (await ask(guarded, "GET", "/runs", Cookie=cookie)).status_code
    later = time.monotonic() + SESSION_CHECK_S
    monkeypatch.setattr(sessions.time, "monotonic", lambda: later)
    assert 401 == (await ask(second, "GET", "/session", Cookie=cookie)).status_code


async def test_a_session_ends_with_its_key(guarded: ASGIConductor) -> None:
    cookie, _ = await signed_in(guarded, await key_of(guarded, "ada", "read"))
    assert 200 == (await ask(guarded, "GET", "/workflows", Cookie=cookie)).status_code
    assert 200 == (await ask(guarded, "DELETE", "/keys/ada", **ADMIN)).status_code
    assert 401 == (await ask(guarded, "GET", "/workflows", Cookie=cookie)).status_code
    await key_of(guarded, "ada", "admin")  # another one of the same name
    assert 401 == (await ask(guarded, "GET", "/workflows", Cookie=cookie)).status_code


async def test_a_session_ends_when_its_time_or_that_of_its_key_is_over(
    guarded: ASGIConductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, _ = await signed_in(guarded, await key_of(guarded, "ada", "read", expires="1h"))
    whole, _ = await signed_in(guarded, TOKEN)
    now = time.time()
    for ahead_s, expected in ((3599, [200, 200]), (3601, [401, 200]), (SESSION_S + 1, [401, 401])):
        monkeypatch.setattr(key_ring.time, "time", lambda ahead_s=ahead_s: now + ahead_s)
        assert expected == [
            (await ask(guarded, "GET", "/workflows", Cookie=cookie)).status_code for cookie in (short, whole)
        ]


@pytest.mark.parametrize("key", ["", "wrong", TOKEN[:-1], TOKEN + "x", "\u2603", "br1dge", "None", "a" * 10_000])
async def test_no_other_key_gives_a_cookie(guarded: ASGIConductor, key: str) -> None:
    answer = await ask(guarded, "POST", "/session", {"key": key})
    assert (401, False) == (answer.status_code, "set-cookie" in answer.headers)


@pytest.mark.parametrize(
    "cookie",
    [
        "penstock_session=",
        "penstock_session=x",
        "penstock_session=" + "A" * 43,
        "__Host-penstock_session=x; penstock_session=y",
        "penstock_session=\xff",
        "penstock_session=" + "A" * 4000,
        "penstock_session",
        "penstock_session=>; penstock_session=*",
    ],
)
async def test_whatever_else_a_cookie_says_is_401(guarded: ASGIConductor, cookie: str) -> None:
    assert 401 == (await ask(guarded, "GET", "/workflows", Cookie=cookie)).status_code


async def test_what_is_stored_of_a_session_is_no_cookie(guarded: ASGIConductor, store: Store) -> None:
    await signed_in(guarded, TOKEN)
    for entry in await store.sessions.all():
        assert 401 == (await ask(guarded, "GET", "/workflows", Cookie=f"penstock_session={entry.key}")).status_code
    assert (await store.broker.api(f"STREAM.INFO.{names.bucket_stream(names.SESSIONS)}"))["config"]["max_age"]


async def test_the_bridge_takes_no_cookie(guarded: ASGIConductor) -> None:
    cookie, shown = await signed_in(guarded, TOKEN)
    answer = await ask(guarded, "POST", "/v1/tasks/poll", {}, Cookie=cookie, X_CSRF_Token=shown["csrf_token"])
    assert 401 == answer.status_code


async def test_who_one_is_is_said_also_to_a_bearer_and_while_the_api_is_open(
    guarded: ASGIConductor, http: ASGIConductor
) -> None:
    assert {"scope": "admin", "name": "SERVICE_API_TOKEN"} == (await ask(guarded, "GET", "/session", **ADMIN)).json
    assert 401 == (await ask(guarded, "GET", "/session")).status_code
    assert {"scope": "admin"} == (await ask(http, "GET", "/session")).json
    assert 409 == (await ask(http, "POST", "/session", {"key": "x"})).status_code


async def test_a_page_of_another_site_cannot_sign_in(guarded: ASGIConductor) -> None:
    answer = await ask(guarded, "POST", "/session", {"key": TOKEN}, Origin="https://evil.example")
    assert (403, False) == (answer.status_code, "set-cookie" in answer.headers)
