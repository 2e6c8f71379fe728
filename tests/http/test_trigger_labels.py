"""Labels of the runs that triggers start, and lists of the runs of one trigger."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from tests.support.trigger_events import engine, publish
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("index")

LABELS = {"customer": "${{ event.customer }}", "from": "a trigger"}


async def put(http: ASGIConductor, name: str, **fields: object) -> None:
    body = orjson.dumps({"workflow": "one", "labels": LABELS, **fields})
    answer = await http.simulate_put(f"/triggers/{name}", body=body)
    assert (200, LABELS) == (answer.status_code, answer.json["labels"]), answer.text


async def runs(http: ASGIConductor, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.simulate_get(f"/runs?{query}")).json
    return found


async def test_an_event_gives_its_run_labels_and_what_it_cannot_give_is_a_dead_letter(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    await put(http, "labelled", event={"subject": "event.labelled"})
    async with engine(broker_settings):
        await publish(store, "event.labelled", b'{"customer": "Ada"}', b'{"nobody": 1}')

        async def letters() -> Any:
            found = (await http.simulate_get("/dead-letters")).json
            return [one for one in found if one.get("trigger") == "labelled"]

        async def found() -> Any:
            return await runs(http, "trigger=labelled")

        (run,) = await until(found)
        (letter,) = await until(letters)
    assert {"customer": "Ada", "from": "a trigger"} == run["labels"]
    assert "labels.customer" in letter["error"]
    assert [run["run_id"]] == [one["run_id"] for one in await runs(http, "label=customer:Ada&trigger=labelled")]
    assert [] == await runs(http, "trigger=other")
    assert [] == await runs(http, "q=labelled")
    assert 1 == (await http.simulate_get("/runs/stats?trigger=labelled")).json["total"]


async def test_a_fired_run_has_them_and_a_trial_shows_them(http: ASGIConductor) -> None:
    await put(http, "fired", webhook={"secret": "s"})
    tried = (await http.simulate_post("/triggers/fired/test", body=b'{"customer": 7}')).json
    assert (True, {"customer": "7", "from": "a trigger"}) == (tried["would_start"], tried["labels"])
    refused = (await http.simulate_post("/triggers/fired/test", body=b"{}")).json
    assert (False, True) == (refused["would_start"], "labels.customer" in refused["problems"][0])
    run_id = (await http.simulate_post("/triggers/fired/fire", body=b'{"customer": 7}')).json["run_id"]
    assert tried["labels"] == (await http.simulate_get(f"/runs/{run_id}")).json["labels"]
    answer = await http.simulate_post("/triggers/fired/fire", body=b"{}")
    assert (400, True) == (answer.status_code, "labels.customer" in answer.text)


async def test_a_request_to_a_route_gives_its_run_labels(http: ASGIConductor) -> None:
    labels = {"path": "${{ event.path }}", "who": "${{ event.body.who }}"}
    document = {"workflow": "one", "labels": labels, "http": {"path": "in/here", "auth": "none", "timeout": "1ms"}}
    assert 200 == (await http.simulate_put("/triggers/route", body=orjson.dumps(document))).status_code
    answer = await http.simulate_post("/v1/http/in/here", body=b'{"who": "Ada"}')
    assert 202 == answer.status_code
    (run,) = await runs(http, "trigger=route")
    assert (answer.json["run_id"], {"path": "in/here", "who": "Ada"}) == (run["run_id"], run["labels"])
    refused = await http.simulate_post("/v1/http/in/here", body=b'"nobody"')
    assert (400, True) == (refused.status_code, "labels.who" in refused.text)
