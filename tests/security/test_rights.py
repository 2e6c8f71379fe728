"""What a request must show, for every method of every path: let in with it, refused without, whatever else it shows.

A route without a row here fails a test, and so does a row that says otherwise than the document of the API.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import pytest
from falcon.asgi import Response
from falcon.inspect import inspect_routes
from falcon.testing import ASGIConductor, create_asgi_req

from penstock.actors.control import triggers
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.errors import Denied
from penstock.engine.validation import parse
from penstock.http.app import create_app
from penstock.http.bridge.auth import BridgeAuth
from penstock.http.openapi.operations.operation import Access
from penstock.http.openapi.table import OPERATIONS
from tests.support.conductor import Conductor

API, BRIDGE, OPEN, APPROVAL, SIGNATURE = Access.API, Access.BRIDGE, Access.OPEN, Access.APPROVAL, Access.SIGNATURE

RIGHTS: Mapping[str, Access] = {
    "GET /workflows": API,
    "POST /workflows": API,
    "GET /workflows/{name}": API,
    "DELETE /workflows/{name}": API,
    "GET /workflows/{name}/versions": API,
    "POST /workflows/{name}/call": API,
    "GET /runs": API,
    "POST /runs": API,
    "POST /runs/bulk": API,
    "POST /runs/cancel": API,
    "POST /runs/retry": API,
    "GET /runs/{run_id}": API,
    "POST /runs/{run_id}/cancel": API,
    "POST /runs/{run_id}/retry": API,
    "GET /runs/{run_id}/events": API,
    "GET /runs/{run_id}/steps/{step_id}/output": API,
    "GET /runs/{run_id}/steps/{step_id}/items": API,
    "GET /runs/{run_id}/scheduled": API,
    "DELETE /runs/{run_id}/scheduled": API,
    "POST /runs/{run_id}/signal/{name}": API,
    "GET /triggers": API,
    "POST /events/{name}": API,
    "POST /triggers": API,
    "GET /triggers/{name}": API,
    "PUT /triggers/{name}": API,
    "DELETE /triggers/{name}": API,
    "POST /triggers/{name}/fire": API,
    "POST /triggers/{name}/test": API,
    "GET /dead-letters": API,
    "GET /dead-letters/{seq}": API,
    "DELETE /dead-letters/{seq}": API,
    "POST /dead-letters/{seq}/replay": API,
    "GET /approvals": API,
    "POST /approvals/{run_id}/{step_id}": API,
    "GET /tasks": API,
    "GET /workers": API,
    "GET /metrics": API,
    "POST /v1/workers/connect": BRIDGE,
    "POST /v1/tasks/poll": BRIDGE,
    "POST /v1/tasks/exchange": BRIDGE,
    "POST /v1/tasks/{task_id}/resolve": BRIDGE,
    "GET /v1/runs/{run_id}/signals/{name}": BRIDGE,
    "POST /v1/runs/{run_id}/signals/{name}": BRIDGE,
    # By what the request itself carries, whatever tokens there are: a person's one-time token, a sender's signature.
    "POST /runs/{run_id}/approval/{step_id}": APPROVAL,
    "POST /v1/webhooks/{name}": SIGNATURE,
    # For probes and readers: they tell nothing of anybody's work.
    "GET /health": OPEN,
    "GET /ready": OPEN,
    "GET /health/telemetry": OPEN,
    "GET /openapi.json": OPEN,
    "GET /docs": OPEN,
}

PLACES = {"run_id": "0" * 32, "step_id": "a", "task_id": "0" * 32 + ".a", "name": "nobody", "seq": "999999"}
API_TOKEN, BRIDGE_TOKEN, SECRET = "of-the-api", "of-the-bridge", "of-webhooks"
SHOWN: Mapping[str, str | None] = {
    "nothing": None,
    "the API's token": f"Bearer {API_TOKEN}",
    "the bridge's token": f"Bearer {BRIDGE_TOKEN}",
    "a wrong token": f"Bearer {API_TOKEN}x",
    "a part of a token": f"Bearer {API_TOKEN[:-1]}",
    "the secret of webhooks": f"Bearer {SECRET}",
    "an empty token": "Bearer ",
    "another scheme": f"Basic {API_TOKEN}",
    "the word None": "Bearer None",
}
# Which tokens the service has, and with what a path of an access then lets in; None is everything.
SERVICES: Mapping[str, tuple[dict[str, Any], Mapping[Access, set[str] | None]]] = {
    "both tokens": (
        {"api_token": API_TOKEN, "bridge_token": BRIDGE_TOKEN, "webhook_secret": SECRET},
        {API: {"the API's token"}, BRIDGE: {"the bridge's token"}},
    ),
    "only the API's": ({"api_token": API_TOKEN}, {API: {"the API's token"}, BRIDGE: set()}),
    "only the bridge's": ({"bridge_token": BRIDGE_TOKEN}, {API: None, BRIDGE: {"the bridge's token"}}),
    "none": ({}, {API: None, BRIDGE: set()}),
}


@pytest.fixture
async def services(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[dict[str, ASGIConductor]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                Conductor(create_app(Settings(broker=broker_settings, http=HttpSettings(**given))))
            )
            for name, (given, _) in SERVICES.items()
        }


async def asked(http: ASGIConductor, right: str, shown: str | None, **more: Any) -> int:
    """The status of an answer to a request without a body, which harms nobody."""
    method, path = right.split()
    headers = {"Authorization": shown} if shown is not None else {}
    return int((await http.simulate_request(method, path.format(**PLACES), headers=headers, **more)).status_code)


def test_every_route_has_a_row_and_the_document_says_the_same() -> None:
    routes = {
        f"{method.method} {route.path}"
        for route in inspect_routes(create_app(Settings()))
        for method in route.methods
        if not method.internal and method.method != "HEAD"  # which is GET without its body
    }
    assert routes == RIGHTS.keys()
    assert {f"{one.method.upper()} {one.path}": one.access for one in OPERATIONS} == RIGHTS


@pytest.mark.parametrize("service", SERVICES)
async def test_each_route_lets_in_who_shows_what_it_wants_and_nobody_else(
    services: dict[str, ASGIConductor], service: str
) -> None:
    lets_in = SERVICES[service][1]
    wrong = []
    for (right, access), (what, shown) in product(RIGHTS.items(), SHOWN.items()):
        if access not in lets_in or (
            right == "GET /metrics" and lets_in[access] is None
        ):  # it asks all processes each time
            continue
        wanted, status = lets_in[access], await asked(services[service], right, shown)
        if (status != 401) != (wanted is None or what in wanted):
            wrong.append(f"{right} with {what}: {status}")
    assert [] == wrong


@pytest.mark.parametrize("right", [right for right, access in RIGHTS.items() if access is OPEN])
async def test_what_is_open_asks_nobody_for_anything(services: dict[str, ASGIConductor], right: str) -> None:
    for shown in (None, "Bearer x"):
        assert await asked(services["both tokens"], right, shown) in (200, 503)


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "OPTIONS", "BREW"])
async def test_no_other_method_gets_past_the_tokens(services: dict[str, ASGIConductor], method: str) -> None:
    guarded = {right.split()[1] for right, access in RIGHTS.items() if access in (API, BRIDGE)}
    assert {401} == {await asked(services["both tokens"], f"{method} {path}", "Bearer x") for path in guarded}


@pytest.mark.parametrize("path", ["//v1/tasks/poll", "v1/tasks/poll", "/elsewhere"])
async def test_the_bridge_is_guarded_by_what_the_router_found_too(path: str) -> None:
    """Whatever the path looked like to who asked before."""
    guard, req = BridgeAuth(BRIDGE_TOKEN), create_asgi_req(path=path)
    await guard.process_request(req, Response())
    req.uri_template = "/v1/tasks/poll"
    with pytest.raises(Denied):
        await guard.process_resource(req, Response(), None, {})


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/v1/tasks", "/v1/tasks/x", "/v1/workers/x/y", "/v1/runs", "/runs/x/y", "/health/x"]
)
async def test_a_client_without_a_token_does_not_learn_what_exists(
    services: dict[str, ASGIConductor], path: str
) -> None:
    assert 401 == await asked(services["both tokens"], f"GET {path}", None)


async def test_a_webhook_is_let_in_by_its_signature_alone(services: dict[str, ASGIConductor], store: Store) -> None:
    await store.definitions.register(parse({"name": "hooked", "steps": [{"id": "a", "task": "t"}]}))
    await triggers.put(store, {"name": "nobody", "workflow": "hooked", "webhook": {"secret": "its-own"}})
    http, right = services["both tokens"], "POST /v1/webhooks/{name}"

    async def sent(secret: str, shown: str | None = None) -> int:
        headers = {"X-Signature-256": "sha256=" + hmac.digest(secret.encode(), b"1", "sha256").hex()}
        headers |= {} if shown is None else {"Authorization": shown}
        return int((await http.simulate_post("/v1/webhooks/nobody", body=b"1", headers=headers)).status_code)

    assert {401} == {await asked(http, right, shown, body=b"1") for shown in SHOWN.values()}
    assert {401} == {
        await sent(secret, f"Bearer {API_TOKEN}") for secret in (SECRET, API_TOKEN, BRIDGE_TOKEN, "", "None")
    }
    assert 202 == await sent("its-own")
    assert 202 == await sent("its-own", "Bearer x")


async def test_no_token_of_the_service_decides_an_approval(services: dict[str, ASGIConductor], store: Store) -> None:
    """Which token does is shown with approvals; here, that no other helps."""
    await store.definitions.register(parse({"name": "asks", "steps": [{"id": "a", "type": "approval"}]}))
    bearer = {"Authorization": f"Bearer {API_TOKEN}"}
    started = await services["both tokens"].simulate_post("/runs", body=b'{"workflow":"asks"}', headers=bearer)
    path = f"/runs/{started.json['run_id']}/approval/a"
    for shown, token in product(SHOWN.values(), (API_TOKEN, BRIDGE_TOKEN, "0" * 64, "None", "\N{SNOWMAN}")):
        headers = {"Authorization": shown} if shown is not None else {}
        answer = await services["both tokens"].simulate_post(
            path, params={"action": "approve", "token": token}, headers=headers
        )
        assert 401 == answer.status_code
    assert (
        400
        == (await services["both tokens"].simulate_post(path, params={"action": "approve"}, headers=bearer)).status_code
    )
