"""What a request must show, for every method of every path: let in with it, refused without, whatever else it shows.

A route without a row here fails a test, and so does a row that says otherwise than the document of the API.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from itertools import product
from typing import Any, NamedTuple

import pytest
from falcon.asgi import Response
from falcon.testing import ASGIConductor, create_asgi_req

from penstock.actors.control import keys, run_operations, triggers
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.access.scopes import KeyScope
from penstock.engine.errors import Denied
from penstock.engine.run.event_payloads import NULL
from penstock.engine.validation import parse
from penstock.http.app import create_app
from penstock.http.bridge.auth import BridgeAuth
from penstock.http.middleware.credentials import Credentials
from penstock.http.middleware.key_ring import KeyRing
from penstock.http.middleware.rights import About
from penstock.http.middleware.sessions import Sessions
from penstock.http.openapi.operations.operation import Access
from penstock.http.openapi.table import OPERATIONS
from tests.support.conductor import Conductor
from tests.support.routes import api_routes

READ, OPERATE, ADMIN = KeyScope
SIGN_IN = Access.SIGN_IN
API, BRIDGE, OPEN, APPROVAL, SIGNATURE = Access.API, Access.BRIDGE, Access.OPEN, Access.APPROVAL, Access.SIGNATURE


class Wants(NamedTuple):
    """What a request must show; of a key, its scope, and the workflow that it must be for."""

    access: Access
    scope: KeyScope = KeyScope.ADMIN
    about: About = About.NONE


RIGHTS: Mapping[str, Wants] = {
    "GET /workflows": Wants(API, READ, About.SEVERAL),
    "POST /workflows": Wants(API, ADMIN, About.SEVERAL),
    "GET /workflows/{name}": Wants(API, READ, About.WORKFLOW),
    "DELETE /workflows/{name}": Wants(API, ADMIN, About.WORKFLOW),
    "GET /workflows/{name}/versions": Wants(API, READ, About.WORKFLOW),
    "POST /workflows/{name}/call": Wants(API, OPERATE, About.WORKFLOW),
    "GET /runs": Wants(API, READ, About.SEVERAL),
    "GET /runs/stats": Wants(API, READ, About.SEVERAL),
    "GET /runs/summaries": Wants(API, READ, About.SEVERAL),
    "POST /runs": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/bulk": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/cancel": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/retry": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/rerun": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/{run_id}/rerun": Wants(API, OPERATE, About.RUN),
    "POST /runs/{run_id}/steps/{step_id}/retry": Wants(API, OPERATE, About.RUN),
    "POST /runs/{run_id}/steps/{step_id}/skip": Wants(API, OPERATE, About.RUN),
    "GET /runs/{run_id}": Wants(API, READ, About.RUN),
    "POST /runs/{run_id}/cancel": Wants(API, OPERATE, About.RUN),
    "POST /runs/pause": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/prune": Wants(API, ADMIN, About.SEVERAL),
    "POST /runs/resume": Wants(API, OPERATE, About.SEVERAL),
    "POST /runs/{run_id}/pause": Wants(API, OPERATE, About.RUN),
    "POST /runs/{run_id}/resume": Wants(API, OPERATE, About.RUN),
    "POST /runs/{run_id}/retry": Wants(API, OPERATE, About.RUN),
    "GET /doctor": Wants(API, READ),
    "GET /broker": Wants(API, READ),
    "GET /settings": Wants(API, ADMIN),
    "GET /runs/{run_id}/explain": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/diff/{other}": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/graph": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/export": Wants(API, READ, About.RUN),
    "POST /runs/import": Wants(API, ADMIN, About.SEVERAL),
    "GET /runs/{run_id}/events": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/steps/{step_id}/input": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/steps/{step_id}/output": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/steps/{step_id}/checkpoint": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/steps/{step_id}/items": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/logs": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/stream": Wants(API, READ, About.RUN),
    "GET /runs/{run_id}/scheduled": Wants(API, READ, About.RUN),
    "DELETE /runs/{run_id}/scheduled": Wants(API, OPERATE, About.RUN),
    "POST /runs/{run_id}/signal/{name}": Wants(API, OPERATE, About.RUN),
    "GET /triggers": Wants(API, READ, About.SEVERAL),
    "POST /events/{name}": Wants(API, OPERATE),
    "POST /triggers": Wants(API, ADMIN, About.SEVERAL),
    "GET /triggers/{name}": Wants(API, READ, About.TRIGGER),
    "PUT /triggers/{name}": Wants(API, ADMIN, About.SEVERAL),
    "DELETE /triggers/{name}": Wants(API, ADMIN, About.TRIGGER),
    "POST /triggers/{name}/fire": Wants(API, OPERATE, About.TRIGGER),
    "POST /triggers/{name}/test": Wants(API, OPERATE, About.TRIGGER),
    "GET /limits": Wants(API, READ),
    "GET /limits/{scope}": Wants(API, READ),
    "PUT /limits/{scope}": Wants(API, ADMIN),
    "DELETE /limits/{scope}": Wants(API, ADMIN),
    "GET /dead-letters": Wants(API, READ, About.SEVERAL),
    "GET /dead-letters/{seq}": Wants(API, READ, About.DEAD_LETTER),
    "DELETE /dead-letters/{seq}": Wants(API, OPERATE, About.DEAD_LETTER),
    "POST /dead-letters/{seq}/replay": Wants(API, OPERATE, About.DEAD_LETTER),
    "GET /approvals": Wants(API, READ, About.SEVERAL),
    "POST /approvals/{run_id}/{step_id}": Wants(API, OPERATE, About.RUN),
    "GET /tasks": Wants(API, READ),
    "GET /workers": Wants(API, READ),
    "POST /session": Wants(SIGN_IN),
    "GET /session": Wants(API, READ, About.SEVERAL),
    "DELETE /session": Wants(API, READ, About.SEVERAL),
    "GET /audit": Wants(API, ADMIN),
    "GET /keys": Wants(API, ADMIN),
    "POST /keys": Wants(API, ADMIN),
    "DELETE /keys/{name}": Wants(API, ADMIN),
    "GET /metrics": Wants(API, READ),
    "POST /v1/workers/connect": Wants(BRIDGE, OPERATE),
    "POST /v1/tasks/poll": Wants(BRIDGE, OPERATE),
    "POST /v1/tasks/exchange": Wants(BRIDGE, OPERATE),
    "POST /v1/tasks/{task_id}/resolve": Wants(BRIDGE, OPERATE),
    "GET /v1/runs/{run_id}/signals/{name}": Wants(BRIDGE, OPERATE),
    "POST /v1/runs/{run_id}/signals/{name}": Wants(BRIDGE, OPERATE),
    # By what the request itself carries, whatever tokens there are: a person's one-time token, a sender's signature.
    "POST /runs/{run_id}/approval/{step_id}": Wants(APPROVAL),
    "POST /v1/webhooks/{name}": Wants(SIGNATURE),
    # For probes and readers: they tell nothing of anybody's work.
    "GET /health": Wants(OPEN),
    "GET /ready": Wants(OPEN),
    "GET /health/telemetry": Wants(OPEN),
    "GET /openapi.json": Wants(OPEN),
    "GET /schemas/definition.json": Wants(OPEN),
    "GET /docs": Wants(OPEN),
}

PLACES = {
    "scope": "a",
    "run_id": "0" * 32,
    "other": "1" * 32,
    "step_id": "a",
    "task_id": "0" * 32 + ".a",
    "name": "nobody",
    "seq": "999999",
}
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


def never() -> Store:
    raise AssertionError("asked for a store")


async def asked(http: ASGIConductor, right: str, shown: str | None, **more: Any) -> int:
    """The status of an answer to a request without a body, which harms nobody."""
    method, path = right.split()
    headers = {"Authorization": shown} if shown is not None else {}
    return int((await http.simulate_request(method, path.format(**PLACES), headers=headers, **more)).status_code)


def test_every_route_has_a_row_and_the_document_says_the_same() -> None:
    routes = {
        f"{method.method} {route.path}"
        for route in api_routes(create_app(Settings()))
        for method in route.methods
        if not method.internal and method.method != "HEAD"  # which is GET without its body
    }
    assert routes == RIGHTS.keys()
    assert RIGHTS == {f"{one.method.upper()} {one.path}": Wants(one.access, one.scope, one.about) for one in OPERATIONS}


@pytest.mark.parametrize("service", SERVICES)
async def test_each_route_lets_in_who_shows_what_it_wants_and_nobody_else(
    services: dict[str, ASGIConductor], service: str
) -> None:
    lets_in = SERVICES[service][1]
    wrong = []
    for (right, (access, *_)), (what, shown) in product(RIGHTS.items(), SHOWN.items()):
        if access not in lets_in or (
            right == "GET /metrics" and lets_in[access] is None
        ):  # it asks all processes each time
            continue
        wanted, status = lets_in[access], await asked(services[service], right, shown)
        if (status != 401) != (wanted is None or what in wanted):
            wrong.append(f"{right} with {what}: {status}")
    assert [] == wrong


@pytest.mark.parametrize("right", [right for right, wants in RIGHTS.items() if wants.access is OPEN])
async def test_what_is_open_asks_nobody_for_anything(services: dict[str, ASGIConductor], right: str) -> None:
    for shown in (None, "Bearer x"):
        assert await asked(services["both tokens"], right, shown) in (200, 503)


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "OPTIONS", "BREW"])
async def test_no_other_method_gets_past_the_tokens(services: dict[str, ASGIConductor], method: str) -> None:
    guarded = {right.split()[1] for right, wants in RIGHTS.items() if wants.access in (API, BRIDGE)}
    assert {401} == {await asked(services["both tokens"], f"{method} {path}", "Bearer x") for path in guarded}


@pytest.mark.parametrize("path", ["//v1/tasks/poll", "v1/tasks/poll", "/elsewhere"])
async def test_the_bridge_is_guarded_by_what_the_router_found_too(path: str) -> None:
    """Whatever the path looked like to who asked before."""
    credentials = Credentials(KeyRing(), Sessions(never), HttpSettings(bridge_token=BRIDGE_TOKEN))
    guard, req = BridgeAuth(credentials), create_asgi_req(path=path)
    await guard.process_request(req, Response())
    req.uri_template = "/v1/tasks/poll"
    with pytest.raises(Denied):
        await guard.process_resource(req, Response(), None, {})


@pytest.mark.parametrize(
    "path", ["/nowhere", "/v1/tasks", "/v1/tasks/x", "/v1/workers/x/y", "/v1/runs", "/runs/x/y", "/health/x"]
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


KEYS: Mapping[str, tuple[KeyScope, str | None]] = {
    "read": (READ, None),
    "operate": (OPERATE, None),
    "admin": (ADMIN, None),
    "for this workflow": (ADMIN, "here-*"),
    "for another workflow": (ADMIN, "elsewhere"),
}
RANKS = (READ, OPERATE, ADMIN)
BY_KEY = {right: wants for right, wants in RIGHTS.items() if wants.access in (API, BRIDGE)}
REFUSED = {About.NONE: 403, About.WORKFLOW: 403, About.RUN: 404, About.TRIGGER: 404, About.DEAD_LETTER: 404}


class KeyedService(NamedTuple):
    """A service with a key of each kind, and what the paths of operations name, all of one workflow."""

    http: ASGIConductor
    keys: Mapping[str, str]
    places: Mapping[str, Mapping[str, str]]

    async def ask(self, right: str, key: str | None) -> int:
        method, path = right.split()
        places = dict(PLACES)
        for first, found in self.places.items():
            places |= found if first in path.split("/") else {}
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}
        answer = await self.http.simulate_request(method, path.format(**places), headers=headers)
        return int(answer.status_code)


@pytest.fixture
async def keyed(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[KeyedService]:
    await store.definitions.register(parse({"name": "here-1", "steps": [{"id": "a", "task": "t"}]}))
    await triggers.put(store, {"name": "hook", "workflow": "here-1", "webhook": {"secret": "its-own"}})
    run_id = await run_operations.start(store, *await store.definitions.latest("here-1"), NULL)
    await run_operations.cancel(store, run_id)
    await store.publisher.send(names.dead_history_subject(run_id), b"no event", {"Dead-Run": run_id, "Dead-Error": "x"})
    made = {
        name: await keys.create(store, name.replace(" ", "-"), scope, workflow=workflow, has_token=True)
        for name, (scope, workflow) in KEYS.items()
    }
    places = {
        "runs": {"run_id": run_id, "other": run_id},
        "approvals": {"run_id": run_id},
        "workflows": {"name": "here-1"},
        "triggers": {"name": "hook"},
        "dead-letters": {"seq": str(await store.dead_letters.last_seq())},
    }
    async with Conductor(create_app(Settings(broker=broker_settings))) as http:
        yield KeyedService(http, {name: one.key for name, one in made.items()}, places)
    await store.api_keys.change(lambda _: [])


async def test_every_operation_refuses_who_has_no_key_or_one_of_a_smaller_scope(keyed: KeyedService) -> None:
    wrong = []
    for right, wants in BY_KEY.items():
        smaller = [scope.value for scope in RANKS[: RANKS.index(wants.scope)]]
        found = {name: await keyed.ask(right, name) for name in smaller}
        if found != dict.fromkeys(smaller, 403) or await keyed.ask(right, None) != 401:
            wrong.append(f"{right}: {found}")
    assert [] == wrong


async def test_every_operation_refuses_a_key_for_another_workflow(keyed: KeyedService) -> None:
    """What names nothing in its path is in tests/http/test_key_patterns.py."""
    named = {right: REFUSED[wants.about] for right, wants in BY_KEY.items() if wants.about is not About.SEVERAL}
    assert named == {right: await keyed.ask(right, "for another workflow") for right in named}


async def test_every_operation_lets_in_a_key_of_its_scope_and_workflow(keyed: KeyedService) -> None:
    wrong = []
    for right, wants in BY_KEY.items():
        able = [scope.value for scope in RANKS[RANKS.index(wants.scope) :]]
        able += ["for this workflow"] if wants.about is not About.NONE else []
        found = {name: await keyed.ask(right, name) for name in able}
        wrong += [f"{right} with the key {name}: {status}" for name, status in found.items() if status in (401, 403)]
        if wants.about is About.NONE and await keyed.ask(right, "for this workflow") != 403:
            wrong.append(f"{right} with a key for some workflows")
    assert [] == wrong
