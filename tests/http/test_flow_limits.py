"""/limits: what is registered, what is overridden, and what the owners say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from falcon.testing import ASGIConductor
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.limits.questions import LimitQuestion, LimitSeen, LimitWaiter, answer_of, question_in
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.limits.configs import allowed_now
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Granted, Released
from penstock.http.app import create_app
from tests.support.conductor import Conductor

STEP = {"id": "a", "task": "t"}
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.fixture
async def http(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[ASGIConductor]:
    async with Conductor(create_app(Settings(broker=broker_settings))) as conductor:
        yield conductor


@pytest.fixture
async def guarded(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[ASGIConductor]:
    settings = Settings(broker=broker_settings, http=HttpSettings(api_token="s3cret"))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


def new_name() -> str:
    return f"w{uuid4().hex}"


async def register(http: ASGIConductor, name: str, **more: Any) -> Any:
    """The warnings."""
    answer = await http.simulate_post("/workflows", json={"name": name, "steps": [STEP], **more}, headers=TOKEN)
    assert 201 == answer.status_code, answer.text
    return [one for one in answer.json["warnings"] if "no worker" not in one]


async def get(http: ASGIConductor, path: str) -> Any:
    answer = await http.simulate_get(path, headers=TOKEN)
    assert 200 == answer.status_code, answer.text
    return answer.json


async def put(http: ASGIConductor, path: str, body: object) -> Any:
    return await http.simulate_put(path, json=body, headers=TOKEN)


async def test_a_definition_registers_its_limits(http: ASGIConductor) -> None:
    name, shared = new_name(), new_name()
    step = {
        **STEP,
        "concurrency": [{"limit": 3}],
        "rate_limit": [{"limit": 10, "per": "1s", "burst": 5, "scope": shared}],
    }
    assert [] == await register(http, name, version="7", concurrency=[{"limit": 5}], steps=[step])
    of_runs = await get(http, f"/limits/{name}")
    assert ("runs", 5, [], 0, [], 0) == tuple(
        of_runs[field] for field in ("kind", "limit", "holders", "holders_total", "waiting", "waiting_total")
    )
    (registered,) = of_runs["registered"]
    assert (name, "7", 5) == (registered["workflow"], registered["version"], registered["limit"])
    of_step = await get(http, f"/limits/{name}.a")
    assert ("executions", 3) == (of_step["kind"], of_step["limit"])
    rate = await get(http, f"/limits/{shared}")
    assert ("rate", {"limit": 10, "per": "1s", "burst": 5}, 5.0) == (rate["kind"], rate["rate_limit"], rate["tokens"])
    assert "a" == rate["registered"][0]["step_id"]
    assert {name, f"{name}.a", shared} <= {one["scope"] for one in await get(http, "/limits?limit=1000")}


async def test_what_is_registered_last_counts_and_a_neighbour_is_named(http: ASGIConductor) -> None:
    first, second, shared = new_name(), new_name(), new_name()
    assert [] == await register(http, first, concurrency=[{"limit": 5, "scope": shared}])
    (warning,) = await register(http, second, concurrency=[{"limit": 7, "scope": shared}])
    assert f'workflow "{first}" has registered 5 for the same scope; 7 counts' in warning
    assert 7 == (await get(http, f"/limits/{shared}"))["limit"]
    (warning,) = await register(http, first, concurrency=[{"limit": 5, "scope": shared}])
    assert f'workflow "{second}" has registered 7' in warning
    found = await get(http, f"/limits/{shared}")
    assert (5, [first, second]) == (found["limit"], [one["workflow"] for one in found["registered"]])


async def test_steps_of_one_workflow_are_neighbours_too(http: ASGIConductor) -> None:
    shared = new_name()
    limits = [[{"limit": 1, "scope": shared}], [{"limit": 2, "scope": shared}]]
    steps = [{"id": step_id, "task": "t", "concurrency": one} for step_id, one in zip("ab", limits, strict=True)]
    (warning,) = await register(http, new_name(), steps=steps)
    assert warning.startswith('step "b": concurrency of executions of scope')
    assert 'step "a" has registered 1' in warning
    assert 2 == (await get(http, f"/limits/{shared}"))["limit"]


async def test_a_limit_that_nobody_names_any_more_is_gone(http: ASGIConductor) -> None:
    first, second, shared = new_name(), new_name(), new_name()
    await register(http, first, concurrency=[{"limit": 5, "scope": shared}])
    await register(http, second, concurrency=[{"limit": 7, "scope": shared}])
    await register(http, second)
    assert 5 == (await get(http, f"/limits/{shared}"))["limit"]
    assert 200 == (await http.simulate_delete(f"/workflows/{first}")).status_code
    assert 404 == (await http.simulate_get(f"/limits/{shared}")).status_code


async def test_an_override_counts_for_all_keys_or_for_one_until_it_is_taken_back(
    http: ASGIConductor, store: Store
) -> None:
    name = new_name()
    await register(http, name, concurrency=[{"limit": 5, "key": "input.tenant"}])
    assert 2 == (await put(http, f"/limits/{name}", {"limit": 2})).json["limit"]
    set_for_one = (await put(http, f"/limits/{name}?key=acme", {"limit": 0})).json
    assert (0, "acme", "acme") == (set_for_one["limit"], set_for_one["key"], set_for_one["override"]["key"])
    configs = await store.limit_configs.of_scope(name)
    allowed = [allowed_now(configs, LimitName(LimitKind.RUNS, name, key), Allowed(5)).limit for key in ("acme", "x")]
    assert [0, 2] == allowed
    (warning,) = await register(http, name, concurrency=[{"limit": 6, "key": "input.tenant"}])
    assert "2 counts now, because it is overridden" in warning
    assert 2 == (await http.simulate_delete(f"/limits/{name}?key=acme")).json["limit"]
    assert 6 == (await http.simulate_delete(f"/limits/{name}")).json["limit"]
    again = await http.simulate_delete(f"/limits/{name}")
    assert (404, f'the limit with scope "{name}" is not overridden') == (again.status_code, again.text.strip())


async def test_an_override_that_is_all_that_is_left_is_taken_back(http: ASGIConductor, store: Store) -> None:
    name = new_name()
    await register(http, name, concurrency=[{"limit": 5}])
    await put(http, f"/limits/{name}", {"limit": 2})
    assert 200 == (await http.simulate_delete(f"/workflows/{name}")).status_code
    left = await http.simulate_delete(f"/limits/{name}")
    assert (200, False) == (left.status_code, "override" in left.json)
    assert {} == await store.limit_configs.of_scope(name)


async def test_kinds_of_one_scope_are_told_apart(http: ASGIConductor) -> None:
    shared = new_name()
    step = {
        **STEP,
        "concurrency": [{"limit": 3, "scope": shared}],
        "rate_limit": [{"limit": 1, "per": "1s", "scope": shared}],
    }
    await register(http, new_name(), concurrency=[{"limit": 5, "scope": shared}], steps=[step])
    refused = await http.simulate_get(f"/limits/{shared}")
    assert (400, True) == (refused.status_code, "several kinds: say kind, one of runs executions rate" in refused.text)
    assert 3 == (await get(http, f"/limits/{shared}?kind=executions"))["limit"]
    assert 400 == (await put(http, f"/limits/{shared}", {"limit": 1})).status_code
    assert "rate" == (await put(http, f"/limits/{shared}", {"rate_limit": {"limit": 2, "per": "1m"}})).json["kind"]
    assert 400 == (await put(http, f"/limits/{shared}?kind=rate", {"limit": 1})).status_code
    assert 1 == (await put(http, f"/limits/{shared}?kind=runs", {"limit": 1})).json["limit"]
    assert 3 == (await get(http, f"/limits/{shared}?kind=executions"))["limit"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "exactly one of limit, rate_limit is needed, given: none"),
        ({"limit": 1, "rate_limit": {"limit": 1, "per": "1s"}}, "given: limit, rate_limit"),
        ({"limit": -1}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"rate_limit": {"limit": 1}}, "rate_limit: per is missing"),
        ({"rate_limit": {"limit": 1, "per": "soon"}}, "rate_limit: per"),
        ({"limit": 1, "odd": 1}, 'unknown field "odd"'),
        ([], "an object is needed"),
    ],
)
async def test_what_is_wrong_with_an_override_is_named(http: ASGIConductor, body: object, problem: str) -> None:
    answer = await put(http, "/limits/any", body)
    assert (400, True) == (answer.status_code, problem in answer.text), answer.text


@pytest.mark.parametrize(
    "path", ["/limits/a b", "/limits/x?kind=odd", "/limits?limit=0", "/limits/x?key=" + "k" * 1025]
)
async def test_what_is_wrong_with_a_question_is_named(http: ASGIConductor, path: str) -> None:
    assert 400 == (await http.simulate_get(path)).status_code


async def test_an_unknown_scope_is_404(http: ASGIConductor) -> None:
    name = new_name()
    for answer in (
        await http.simulate_get(f"/limits/{name}"),
        await put(http, f"/limits/{name}", {"limit": 1}),
        await http.simulate_delete(f"/limits/{name}"),
    ):
        assert (404, True) == (answer.status_code, f'has the scope "{name}"' in answer.text)


async def test_who_holds_and_who_waits_comes_from_the_owner(http: ASGIConductor, store: Store) -> None:
    scope, asked = new_name(), list[LimitQuestion]()
    await register(http, new_name(), concurrency=[{"limit": 1, "scope": scope, "key": "input"}])
    name = LimitName(LimitKind.RUNS, scope, "acme")
    waiting = (LimitWaiter(1, "s.0", "s", priority=5), LimitWaiter(2, "t.0", "t"))
    seen = LimitSeen(name, Allowed(9), 1, (Granted("r.0", "r", at=1.5),), 7, waiting)

    async def answer(msg: Msg) -> None:
        question = question_in(msg.data)
        asked.append(question)
        mine = msg.subject == names.limits_question(names.partition(name.id)) and question.limit_id in (None, name.id)
        await store.broker.publish(msg.reply, answer_of([seen] if mine else []))

    await store.limit_log.make()
    async with AsyncExitStack() as stack:
        for number in range(PARTITIONS):
            await stack.enter_async_context(store.broker.listening(names.limits_question(number), answer))
        await store.broker.flush()
        one = await get(http, f"/limits/{scope}?key=acme")
        whole = await get(http, f"/limits/{scope}")
        listed = await get(http, "/limits")
    assert [{"run_id": "r", "since": "1970-01-01T00:00:01.500000Z"}] == one["holders"]
    assert [
        {"run_id": "s", "place": 1, "reason": "concurrency", "priority": 5},
        {"run_id": "t", "place": 2, "reason": "concurrency", "priority": 0},
    ] == one["waiting"]
    assert (1, 7, 1) == (one["limit"], one["waiting_total"], one["holders_total"])
    assert [{"key": "acme", "holders_total": 1, "waiting_total": 7}] == whole["keys"]
    assert (scope, "acme", 7) == tuple(listed[0][field] for field in ("scope", "key", "waiting_total"))
    assert LimitQuestion(name.id, named=1000) in asked
    await (await store.limit_log.release(name.id, Released(holder="r.0")))
    nobody = await http.simulate_get(f"/limits/{scope}?key=acme")
    assert (503, True) == (nobody.status_code, "no shard owns the limits" in nobody.text)
    await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")


async def test_an_override_is_in_the_audit_log(guarded: ASGIConductor) -> None:
    name = new_name()
    await register(guarded, name, concurrency=[{"limit": 5}])
    changed = (await put(guarded, f"/limits/{name}", {"limit": 2})).json
    assert "SERVICE_API_TOKEN" == changed["override"]["by"]
    newest = (await get(guarded, "/audit?limit=1"))[0]
    assert ("setLimit", f"/limits/{name}", "done") == tuple(newest[field] for field in ("what", "on", "outcome"))


async def test_a_key_for_some_workflows_sees_no_limits(guarded: ASGIConductor) -> None:
    body = {"name": "some", "scope": "admin", "workflow": "w*"}
    key = (await guarded.simulate_post("/keys", json=body, headers=TOKEN)).json["key"]
    for path in ("/limits", "/limits/w"):
        assert 403 == (await guarded.simulate_get(path, headers={"Authorization": f"Bearer {key}"})).status_code
