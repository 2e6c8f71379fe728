from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import run_operations, triggers
from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX, TRIGGERS_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.trigger import batching
from tests.support.trigger_events import engine, publish
from tests.support.waiting import until

WEBHOOK = {"name": "hook", "workflow": "one", "webhook": {"secret": "hush-hush"}}
CRON = {"name": "nightly", "workflow": "one", "cron": {"expression": "0 3 * * *", "timezone": "Europe/Amsterdam"}}


@pytest.fixture(autouse=True)
async def _no_triggers(http: ASGIConductor, store: Store) -> None:
    for kept in await triggers.get_all(store):
        await triggers.delete(store, kept.trigger.name)


async def post(http: ASGIConductor, path: str, document: Any) -> Any:
    return await http.simulate_post(path, body=orjson.dumps(document))


async def test_a_trigger_is_made_shown_listed_and_deleted(http: ASGIConductor) -> None:
    made = await post(http, "/triggers", CRON)
    assert 201 == made.status_code
    shown = (await http.simulate_get("/triggers/nightly")).json
    assert shown == made.json
    assert {**CRON, "enabled": True} == {
        key: value for key, value in shown.items() if key not in ("created_at", "next_at")
    }
    assert shown["next_at"] > shown["created_at"]
    await post(http, "/triggers", WEBHOOK)
    assert ["hook", "nightly"] == [one["name"] for one in (await http.simulate_get("/triggers")).json]
    deleted = await http.simulate_delete("/triggers/nightly")
    assert (200, {"name": "nightly", "status": "deleted"}) == (deleted.status_code, deleted.json)
    assert 404 == (await http.simulate_get("/triggers/nightly")).status_code
    assert 404 == (await http.simulate_delete("/triggers/nightly")).status_code
    assert ["hook"] == [one["name"] for one in (await http.simulate_get("/triggers")).json]


async def test_the_secret_is_in_no_answer_and_survives_a_put_of_what_get_gave(
    http: ASGIConductor, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [await post(http, "/triggers", WEBHOOK)]
    shown = await http.simulate_get("/triggers/hook")
    assert {"secret": True} == shown.json["webhook"]
    answers += [shown, await http.simulate_get("/triggers")]
    answers.append(await http.simulate_put("/triggers/hook", body=orjson.dumps({**shown.json, "enabled": False})))
    answers.append(await post(http, "/triggers", {**WEBHOOK, "webhook": {"secret": "hush-hush\n"}}))
    answers.append(await post(http, "/triggers", {**WEBHOOK, "workflow": "unknown"}))
    assert [201, 200, 200, 200, 400, 400] == [answer.status_code for answer in answers]
    assert not [answer.text for answer in answers if "hush" in answer.text]
    kept = await triggers.get(store, "hook")
    assert (False, "hush-hush") == (kept.trigger.enabled, kept.trigger.secret)
    without = await http.simulate_put("/triggers/hook", body=orjson.dumps({"workflow": "one", "webhook": {}}))
    assert {} == without.json["webhook"]
    assert (await triggers.get(store, "hook")).trigger.secret is None
    assert "hush" not in "".join(capfd.readouterr())


async def test_a_deleted_triggers_secret_is_gone(http: ASGIConductor) -> None:
    await post(http, "/triggers", WEBHOOK)
    await http.simulate_delete("/triggers/hook")
    answer = await post(http, "/triggers", {**WEBHOOK, "webhook": {"secret": True}})
    assert (400, "webhook: secret must be a string: there is no stored secret to keep\n") == (
        answer.status_code,
        answer.text,
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "a trigger must be an object, not an array"),
        ({**CRON, "workflow": "unknown"}, 'workflow "unknown" is not registered'),
        ({**CRON, "cron": {"expression": "0 3 * *"}}, 'cron: expression "0 3 * *": wrong number of fields'),
        ({**CRON, "webhook": {}}, "exactly one of cron, subject, event, webhook, http is needed, given: cron, webhook"),
        ({**CRON, "name": "a b"}, 'name "a b" may hold only'),
        ({**CRON, "name": None}, "name is missing"),
        ({**CRON, "extra": 1}, 'unknown field "extra"'),
        ({**CRON, "workflow": "typed", "input": {"n": "x"}}, "input.n: "),
        ({"name": "s", "workflow": "one", "subject": {"subject": "history.>"}}, "belongs to the service itself"),
    ],
)
async def test_a_wrong_document_is_400_and_names_what_is_wrong(
    http: ASGIConductor, document: Any, problem: str
) -> None:
    answer = await post(http, "/triggers", document)
    assert (400, "text/plain; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert problem in answer.text
    assert [] == (await http.simulate_get("/triggers")).json


async def test_put_takes_the_name_from_the_path(http: ASGIConductor) -> None:
    document = {key: value for key, value in CRON.items() if key != "name"}
    answer = await http.simulate_put("/triggers/daily", body=orjson.dumps(document))
    assert (200, "daily") == (answer.status_code, answer.json["name"])
    other = await http.simulate_put("/triggers/daily", body=orjson.dumps(CRON))
    assert (400, 'name must be "daily" as in the path, or absent\n') == (other.status_code, other.text)


@pytest.mark.parametrize("path", ["/triggers/", "/triggers//fire", "/triggers//test"])
async def test_a_missing_name_is_named(http: ASGIConductor, path: str) -> None:
    answer = await http.simulate_request("GET" if path == "/triggers/" else "POST", path)
    assert (400, "the trigger's name is missing\n") == (answer.status_code, answer.text)


async def test_fire_starts_a_run_with_the_body_or_the_triggers_own_input(http: ASGIConductor, store: Store) -> None:
    await post(http, "/triggers", {**CRON, "input": {"own": 1}, "enabled": False})
    for body, expected in ((b"", b'{"own":1}'), (b'{"given": 2}', b'{"given": 2}')):
        fired = await http.simulate_post("/triggers/nightly/fire", body=body)
        assert 201 == fired.status_code
        run = await run_operations.get(store, fired.json["run_id"])
        assert (expected, "one") == (bytes(run.input), run.workflow_id)
    assert (400, True) == (
        (bad := await http.simulate_post("/triggers/nightly/fire", body=b"{")).status_code,
        "JSON" in bad.text,
    )
    large = b'"' + b"x" * (PAYLOAD_BYTES_MAX - 1) + b'"'
    assert 413 == (await http.simulate_post("/triggers/nightly/fire", body=large)).status_code
    assert 404 == (await http.simulate_post("/triggers/nobody/fire")).status_code


async def test_fire_checks_the_workflows_schema(http: ASGIConductor, store: Store) -> None:
    await post(http, "/triggers", {**WEBHOOK, "workflow": "typed"})
    before = await store.history.last_seq()
    answer = await http.simulate_post("/triggers/hook/fire", body=b'{"n": "x"}')
    assert (400, True) == (answer.status_code, answer.text.startswith("input.n: "))
    assert before == await store.history.last_seq()


async def test_a_trial_says_what_would_happen_and_starts_nothing(http: ASGIConductor, store: Store) -> None:
    before = await store.history.last_seq()
    await post(http, "/triggers", CRON)
    trial = (await http.simulate_post("/triggers/nightly/test")).json
    assert (True, "one", "1", None) == (trial["would_start"], trial["workflow"], trial["version"], trial["input"])
    assert 5 == len(trial["next"])
    assert trial["next"] == sorted(trial["next"])
    event = {
        "name": "opened",
        "workflow": "typed",
        "event": {"subject": "event.issue", "field": "action", "value": "opened"},
    }
    await post(http, "/triggers", event)
    refused = (await http.simulate_post("/triggers/opened/test", body=b'{"action": "closed"}')).json
    assert refused["would_start"] is False
    assert "the filter does not let it through" == refused["problems"][0]
    assert "input" in refused["problems"][1]
    await post(http, "/triggers", {**event, "enabled": False})
    assert (
        "the trigger is disabled" == (await http.simulate_post("/triggers/opened/test", body=b"{}")).json["problems"][0]
    )
    assert before == await store.history.last_seq()


async def test_there_is_a_most_of_triggers(http: ASGIConductor, store: Store) -> None:
    slots = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with slots:
            document = {"name": f"t{number}", "workflow": "one", "webhook": {}, "enabled": False}
            await triggers.put(store, document)

    await asyncio.gather(*(one(number) for number in range(TRIGGERS_MAX)))
    answer = await post(http, "/triggers", WEBHOOK)
    assert (409, f"there are {TRIGGERS_MAX} triggers already, which is the most\n") == (answer.status_code, answer.text)
    again = await post(http, "/triggers", {**WEBHOOK, "name": "t7"})
    assert 201 == again.status_code


@pytest.mark.parametrize(
    "how",
    [
        {"debounce": {"period": "5s", "max_wait": "1m", "key": "event.who"}},
        {"batch": {"size": 10, "period": "1m"}},
    ],
)
async def test_how_several_events_become_one_run_is_shown_and_survives_a_put_of_what_get_gave(
    http: ASGIConductor, how: dict[str, Any]
) -> None:
    made = await post(http, "/triggers", {**WEBHOOK, **how})
    assert 201 == made.status_code
    shown = (await http.simulate_get("/triggers/hook")).json
    assert shown == {**shown, **how}
    assert 200 == (await http.simulate_put("/triggers/hook", body=orjson.dumps(shown))).status_code
    assert shown == (await http.simulate_get("/triggers/hook")).json
    trial = (await post(http, "/triggers/hook/test", {"who": "x"})).json
    assert trial["would_start"]
    assert ([{"who": "x"}] if "batch" in how else {"who": "x"}) == trial["input"]
    assert trial["when"].endswith("1m after the first at the latest")
    wrong = await post(http, "/triggers", {**WEBHOOK, "batch": {"size": 0}})
    assert (400, True) == (wrong.status_code, "batch: period is missing" in wrong.text)


@pytest.mark.parametrize(
    ("how", "waiting", "due"),
    [
        ({"batch": {"size": 10, "period": "5m", "key": "event.who"}}, {"batches": 2, "events": 5}, 300),
        ({"debounce": {"period": "4m", "max_wait": "1h", "key": "event.who"}}, {"batches": 2, "events": 2}, 240),
    ],
)
async def test_events_that_wait_for_their_run_are_shown(
    http: ASGIConductor,
    store: Store,
    broker_settings: BrokerSettings,
    how: dict[str, Any],
    waiting: dict[str, int],
    due: int,
) -> None:
    event = {"subject": f"event.waiting.{due}"}
    made = await post(http, "/triggers", {"name": "gather", "workflow": "one", "event": event, **how})
    assert 201 == made.status_code
    assert "open_batches" not in (await http.simulate_get("/triggers/gather")).json
    async with engine(broker_settings):
        await publish(store, event["subject"], *(orjson.dumps({"who": who, "n": n}) for n, who in enumerate("aabba")))

        async def taken_up() -> Any:
            kept = await triggers.get(store, "gather")
            handled = [await store.batches.find(kept.generation, batching.key_token(who)) for who in "ab"]
            return all(handled) and 5 == sum(one.state.count for one in handled if one is not None)

        await until(taken_up)
    shown = (await http.simulate_get("/triggers/gather")).json
    found = shown["open_batches"]
    assert waiting == {name: found[name] for name in waiting}
    since, until_at = (datetime.fromisoformat(found[name]) for name in ("since", "due_at"))
    assert due <= (until_at - since).total_seconds() < due + 30
    assert 200 == (await http.simulate_put("/triggers/gather", body=orjson.dumps(shown))).status_code
    assert "open_batches" not in (await http.simulate_get("/triggers")).json[0]
