"""Pages of other origins: they change nothing, and read nothing, unless the settings allow their origin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock.actors.control import triggers
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.http.app import create_app
from penstock.http.openapi.operations.operation import Access
from penstock.http.openapi.table import OPERATIONS
from tests.http.test_protected_mode import PLACES
from tests.http.test_webhooks import signed
from tests.support.conductor import Conductor

CONSOLE, EVIL = "https://console.example.org", "https://evil.example"
BODY = b'{"workflow":"one"}'
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
SERVICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "insecure": {"insecure": True},
    "token": {"api_token": "t"},
    "cors": {"api_token": "t", "cors_origins": (CONSOLE, "http://localhost:3000")},
    "cors without a token": {"cors_origins": (CONSOLE,)},
}
FOREIGN = [
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": ""},
    {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"},
    {"Origin": EVIL, "Sec-Fetch-Site": "same-origin"},
]
CHANGES = [one for one in OPERATIONS if one.access is Access.API and one.method != "get"]
OWN = [
    {},
    {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "https://127.0.0.1"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
]


@pytest.fixture
async def services(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[dict[str, Conductor]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                Conductor(create_app(Settings(broker=broker_settings, http=HttpSettings(**given))))
            )
            for name, given in SERVICES.items()
        }


def bearing(service: str, headers: dict[str, str]) -> dict[str, str]:
    return {**headers, **({"Authorization": "Bearer t"} if "api_token" in SERVICES[service] else {})}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("service", SERVICES)
async def test_a_foreign_page_starts_no_run(
    services: dict[str, Conductor], store: Store, service: str, headers: dict[str, str]
) -> None:
    before = await store.history.last_seq()
    answer = await services[service].simulate_post("/runs", body=BODY, headers=bearing(service, headers))
    assert (403, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert "SERVICE_CORS_ORIGINS" in answer.text
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("headers", OWN, ids=str)
@pytest.mark.parametrize("service", SERVICES)
async def test_a_page_of_its_own_and_who_is_no_page_start_runs(
    services: dict[str, Conductor], service: str, headers: dict[str, str]
) -> None:
    assert (
        201
        == (await services[service].simulate_post("/runs", body=BODY, headers=bearing(service, headers))).status_code
    )


async def test_the_port_is_part_of_an_origin(services: dict[str, Conductor]) -> None:
    for port, expected in (("8080", 201), ("8081", 403)):
        headers = {"Origin": f"http://LocalHost:{port}"}
        answer = await services["plain"].simulate_post("/runs", body=BODY, headers=headers, host="localhost:8080")
        assert expected == answer.status_code


@pytest.mark.parametrize("operation", CHANGES, ids=lambda one: one.name)
async def test_no_foreign_page_changes_anything_of_the_control_plane(
    services: dict[str, Conductor], operation: Any
) -> None:
    path = operation.path.format(**PLACES)
    answers = [
        await services["plain"].simulate_request(operation.method.upper(), path, headers=headers)
        for headers in ({"Origin": EVIL}, {})
    ]
    assert [True, False] == [answer.status_code == 403 for answer in answers]


async def test_what_carries_its_own_proof_is_not_asked_for_its_origin(
    services: dict[str, Conductor], store: Store
) -> None:
    """A signature, a worker's or an approval's token is nothing that a browser adds by itself."""
    await triggers.put(store, {"name": "hook", "workflow": "one", "webhook": {"secret": "s"}})
    answer = await services["plain"].simulate_post(
        "/v1/webhooks/hook", body=b"1", headers={**signed("s", b"1"), "Origin": EVIL}
    )
    assert 202 == answer.status_code
    path, query = f"/runs/{'0' * 32}/approval/a", {"action": "approve", "token": "x"}
    assert 403 != (await services["plain"].simulate_post(path, params=query, headers={"Origin": EVIL})).status_code


@pytest.mark.parametrize("origin", [CONSOLE, "http://localhost:3000"])
async def test_a_page_that_is_allowed_reads_and_changes_with_a_token_of_its_own(
    services: dict[str, Conductor], origin: str
) -> None:
    page = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    started = await services["cors"].simulate_post("/runs", body=BODY, headers=bearing("cors", page))
    refused = await services["cors"].simulate_post("/runs", body=BODY, headers=page)
    read = await services["cors"].simulate_get("/workflows", headers=bearing("cors", page))
    assert [201, 401, 200] == [answer.status_code for answer in (started, refused, read)]
    for answer in (started, refused, read):
        assert (origin, "*") == (
            answer.headers["access-control-allow-origin"],
            answer.headers["access-control-expose-headers"],
        )
        assert "Origin" in answer.headers["vary"]
        assert "access-control-allow-credentials" not in answer.headers
    bare = {"Origin": CONSOLE, "Sec-Fetch-Site": "cross-site"}
    assert 201 == (await services["cors without a token"].simulate_post("/runs", body=BODY, headers=bare)).status_code


async def test_a_preflight_of_an_allowed_page_needs_no_token_and_changes_nothing(
    services: dict[str, Conductor], store: Store
) -> None:
    before = await store.history.last_seq()
    answer = await services["cors"].simulate_options("/runs", headers={"Origin": CONSOLE, **PREFLIGHT})
    assert (204, CONSOLE) == (answer.status_code, answer.headers["access-control-allow-origin"])
    assert {"GET", "HEAD", "POST", "PUT", "DELETE"} == set(answer.headers["access-control-allow-methods"].split(", "))
    assert "authorization,content-type" == answer.headers["access-control-allow-headers"]
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("service", SERVICES)
async def test_no_other_page_is_let_in(services: dict[str, Conductor], service: str) -> None:
    for origin in (
        EVIL,
        "null",
        CONSOLE.upper(),
        CONSOLE + "/",
        CONSOLE + ".evil.example",
        "http://console.example.org",
    ):
        preflight = await services[service].simulate_options("/runs", headers={"Origin": origin, **PREFLIGHT})
        read = await services[service].simulate_get("/workflows", headers=bearing(service, {"Origin": origin}))
        for answer in (preflight, read):
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert ("cors_origins" in SERVICES[service]) == ("Origin" in read.headers.get("vary", ""))
