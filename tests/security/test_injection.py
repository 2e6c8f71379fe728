"""Names that are more than names: whatever stands where a name belongs is refused by name, or stays a name and nothing
else.

Names become subjects, keys, headers, paths, labels and lines of logs. What reaches one of those is shown here to be
unable to leave its place; that nothing at all is stored for a name that is refused is counted over every stream of the
service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.definition.subjects import RESERVED
from penstock.engine.errors import Unavailable
from penstock.engine.run.events import StepCompleted, encode
from penstock.engine.validation import parse
from penstock.http.app import create_app
from penstock.http.resources.events import Show, _message
from penstock.http.system.metric_pages import MetricPages
from penstock.telemetry.meters import Sample
from penstock.telemetry.metrics import METRICS
from tests.http.conftest import ONE_STEP
from tests.support.conductor import Conductor
from tests.support.waiting import until_true

TOKEN = "br1dge"
OTHER = "f" * 32  # another run's id
FORGED = "Nats-Msg-Id: forged"

HOSTILE: Mapping[str, str] = {
    "any token": "*",
    "all tokens": ">",
    "a wildcard behind a name": "a.>",
    "another run's events": f"a.*.{OTHER}",
    "the broker's API": "$JS.API.STREAM.PURGE.WORKFLOW_HISTORY",
    "a key of another bucket": "$KV.triggers.x",
    "another key's version": "a/0123",
    "a folder up": "../../x",
    "a space": "a b",
    "a tab": "a\tb",
    "a protocol line": "a\r\nPUB history.x 2\r\n{}",
    "a header line": f"a\r\n{FORGED}",
    "a line": "a\nb",
    "NUL": "a\0b",
    "an escape sequence": "a\x1b[2Jb",
    "a control of one byte": "a\x9b31mb",
    "a line of Unicode": "a\u2028b",
    "text from right to left": "a\u202eb",
    "no width": "a\u200bb",
    "Cyrillic look-alike": "\u0430dmin",
    "wide look-alikes": "\uff41\uff42",
    "a wide full stop": "a\uff0eb",
    "letters and a combining one": "e\u0301",
    "a leading dot": ".a",
    "a trailing dot": "a.",
    "two dots": "a..b",
    "quotes": 'a"b',
    "an end of a label": 'a"} 1\nb{c="',
    "a template": "{run_id}",
    "percent signs": "%2e%2e",
    "too long": "a" * 641,  # also for a step of a plan
}


class Place(NamedTuple):
    """Where a name stands. `told`: what a refusal calls it; 404 where something of that name is looked for."""

    method: str
    path: str
    body: Callable[[str], Any] | None = None
    told: str = ""
    status: int = 400


def _step(**more: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{"id": "a", "task": "t", **more}]}


def _polling(**more: Any) -> dict[str, Any]:
    return {"task_types": ["t"], "max_tasks": 1, "timeout_ms": 0, **more}


RUN_ID = "0" * 32
PLACES: tuple[Place, ...] = (
    Place("POST", "/workflows", lambda name: {**_step(), "name": name}, "name"),
    Place("POST", "/workflows", lambda name: {"name": "w", "steps": [{"id": name, "task": "t"}]}, "id"),
    Place("POST", "/workflows", lambda name: _step(task=name), "task"),
    Place("POST", "/workflows", lambda name: _step(worker_group=name), "worker_group"),
    Place("POST", "/workflows", lambda name: _step(depends_on=[name]), "depends"),
    Place("GET", "/workflows/{}", told="workflow name"),
    Place("POST", "/runs", lambda name: {"workflow": name}, "workflow"),
    Place("POST", "/runs/bulk", lambda name: {"workflow_id": name, "inputs": [1]}, "workflow"),
    Place("POST", "/runs/cancel", lambda name: {"workflow_id": name}, "workflow"),
    Place("POST", "/runs/retry", lambda name: {"workflow_id": name, "mode": "rerun"}, "workflow"),
    Place("GET", "/runs?workflow={}", told="workflow"),
    Place("GET", "/runs?status={}", told="status"),
    Place("GET", "/runs?after={}", told="after"),
    Place("GET", "/runs?cursor={}", told="cursor"),
    Place("GET", "/runs?{}=1", told="unknown query parameter"),
    Place("GET", "/runs/{}", told="run", status=404),
    Place("GET", "/runs/{}/events", told="run", status=404),
    Place("GET", "/runs/{}/scheduled", told="run", status=404),
    Place("DELETE", "/runs/{}/scheduled", told="run"),
    Place("POST", "/runs/{}/cancel", told="run", status=404),
    Place("POST", "/runs/{}/signal/go", lambda name: 1, "run", 404),
    Place("POST", f"/runs/{RUN_ID}/signal/{{}}", lambda name: 1, "signal name"),
    Place("POST", f"/runs/{RUN_ID}/approval/{{}}?action=approve&token=x", told="step id"),
    Place("POST", "/triggers", lambda name: {"name": name, "workflow": "one", "webhook": {}}, "name"),
    Place("POST", "/triggers", lambda name: {"name": "x", "workflow": name, "webhook": {}}, "workflow"),
    Place("PUT", "/triggers/{}", lambda name: {"workflow": "one", "webhook": {}}, "trigger name"),
    Place("POST", "/triggers/{}/fire", lambda name: 1, "trigger name"),
    Place("GET", "/triggers/{}", told="trigger name"),
    Place("DELETE", "/triggers/{}", told="trigger name"),
    Place("POST", "/v1/webhooks/{}", lambda name: 1, "webhook", 404),
    Place("GET", "/dead-letters?task={}", told="task"),
    Place("GET", "/dead-letters?run={}", told="run"),
    Place("GET", "/dead-letters?cursor={}", told="cursor"),
    Place("GET", "/dead-letters/{}", told="dead letter", status=404),
    Place("POST", "/dead-letters/{}/replay", told="dead letter", status=404),
    Place("POST", "/v1/workers/connect", lambda name: {"worker_id": name, "task_types": ["t"]}, "worker_id"),
    Place("POST", "/v1/workers/connect", lambda name: {"worker_id": "w", "task_types": ["t", name]}, "task_types[1]"),
    Place("POST", "/v1/tasks/poll", lambda name: _polling(task_types=[name]), "task_types[0]"),
    Place("POST", "/v1/tasks/poll", lambda name: _polling(worker_id=name), "worker_id"),
    Place("POST", "/v1/tasks/poll", lambda name: _polling(worker_group=name), "worker_group"),
    Place("POST", "/v1/tasks/{}/resolve", lambda name: {"action": "complete"}, "task", 404),
    Place("POST", f"/v1/tasks/{RUN_ID}.{{}}/resolve", lambda name: {"action": "complete"}, "task", 404),
    Place("POST", f"/v1/tasks/{RUN_ID}.a/resolve", lambda name: {"action": name}, "action"),
    Place("POST", f"/v1/runs/{RUN_ID}/signals/{{}}", lambda name: 1, "signal name"),
    Place("GET", f"/v1/runs/{RUN_ID}/signals/{{}}", told="signal name"),
)


@pytest.fixture
async def http(broker_settings: BrokerSettings, store: Store) -> AsyncIterator[ASGIConductor]:
    await store.definitions.register(parse(ONE_STEP))
    settings = Settings(broker=broker_settings, http=HttpSettings(bridge_token=TOKEN))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


async def asked(http: ASGIConductor, place: Place, name: str) -> Result:
    path, _, query = place.path.partition("?")
    body = b"" if place.body is None else orjson.dumps(place.body(name))
    return await http.simulate_request(
        place.method,
        path.format(quote(name, safe="")),
        query_string=query.format(quote(name, safe="")),
        body=body,
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


async def stored(store: Store) -> dict[str, int]:
    """The last sequence of every stream, but for what processes tell of themselves now and then."""
    found = (await store.broker.api("STREAM.LIST"))["streams"]
    return {
        one["config"]["name"]: one["state"]["last_seq"] for one in found if one["config"]["name"] != names.TELEMETRY
    }


@pytest.mark.parametrize("what", HOSTILE)
async def test_what_is_no_name_is_refused_by_name_in_every_place(http: ASGIConductor, store: Store, what: str) -> None:
    before, wrong = await stored(store), []
    for place in PLACES:
        answer = await asked(http, place, HOSTILE[what])
        slashes = "/" in HOSTILE[what] and "/{}" in place.path.partition("?")[0]  # such a path is another one
        told = slashes or place.told in answer.text
        printable = all(line.isprintable() for line in answer.text.splitlines())
        if answer.status_code not in ((400, 404, 405) if slashes else (place.status,)) or not told or not printable:
            wrong.append((place.method, place.path, answer.status_code, answer.text))
        assert "forged" not in str(answer.headers).lower()
    assert [] == wrong
    assert before == await stored(store)


KEYS = ["*", ">", "a.b", 'a"b', "{}", "$JS.API.>", f"history.{OTHER}", "../x", "a b", "%0d%0a"]


async def test_an_idempotency_key_may_be_anything_that_prints_and_is_only_ever_hashed(
    http: ASGIConductor, store: Store
) -> None:
    started = set()
    for key in KEYS:
        answers = [
            await http.simulate_post("/runs", body=b'{"workflow":"one"}', headers={"Idempotency-Key": key})
            for _ in range(2)
        ]
        assert {201} == {answer.status_code for answer in answers}
        (run_id,) = {answer.json["run_id"] for answer in answers}
        started.add(run_id)
    assert len(KEYS) == len(started)
    for run_id in started:
        assert 1 == len(await store.reader.subject(names.HISTORY, names.stored_subject(run_id)))


@pytest.mark.parametrize("key", ["", "a\r\nb", "a\nb", "a\0b", "a\x1b[2J", "\xfc", "k" * 256])
async def test_an_idempotency_key_that_does_not_print_is_refused(http: ASGIConductor, store: Store, key: str) -> None:
    before = await stored(store)
    answer = await http.simulate_post("/runs", body=b'{"workflow":"one"}', headers={"Idempotency-Key": key})
    assert (400, True) == (answer.status_code, answer.text.startswith("Idempotency-Key must be"))
    assert before == await stored(store)


async def test_no_user_may_name_a_subject_of_the_service(store: Store) -> None:
    """Every stream's and bucket's, but for events, which are for everybody; and every one that processes talk by."""
    found = (await store.broker.api("STREAM.LIST"))["streams"]
    kept = {subject for one in found for subject in one["config"]["subjects"]}
    talk = {
        names.BRIDGE_FORWARD,
        names.BRIDGE_RELEASE,
        names.ENGINE_PING,
        names.METRICS_PING,
        names.TRIGGERS_PING,
        names.watch_subject("x"),
        names.cancel_subject("x"),
    }
    assert len(kept) > 10
    firsts = {one.partition(".")[0] for one in kept | talk}
    assert {"event"} == {first for first in firsts if first not in RESERVED and not first.startswith("$")}


async def test_the_text_of_an_error_cannot_write_headers_of_its_dead_letter(store: Store) -> None:
    run_id, text = new_run_id(), f"no\r\nDead-Run: {OTHER}\r\n{FORGED}\r\n\r\nbody\0\x1b[2J"
    await store.dead_letters.send_history(run_id, 1, b"as it came", text)
    await store.dead_letters.store_trigger_event("push", "event.x", b"as it came", run_id, text)
    letters = (await store.dead_letters.page()).dead_letters
    assert [run_id, None] == sorted((dead_letter.run_id for dead_letter in letters), key=str)
    for dead_letter in letters:
        assert dead_letter.error.isprintable()
        assert dead_letter.error.startswith("no")
        assert b"as it came" == (await store.dead_letters.get(dead_letter.seq))[1]
    assert ["push"] == [dead_letter.trigger for dead_letter in letters if dead_letter.trigger]


async def test_no_header_or_subject_of_ours_can_hold_a_line_of_the_brokers_protocol(store: Store) -> None:
    """The last line of defence: the client that all goes through."""
    for subject in ("a b", "a\r\nPUB x 0\r\n", "a\n", ""):
        with pytest.raises(Unavailable, match=r"[Ss]ubject"):
            await store.broker.publish(subject, b"")
    inbox, came = store.broker.new_inbox(), list[Any]()

    async def hear(msg: Any) -> None:
        came.append(msg)

    await store.broker.subscribe(inbox, hear)
    await store.broker.publish(inbox, b"body", headers={"X": f"y\r\n{FORGED}\r\n\r\nPUB x 0"})
    await until_true(lambda: came != [])
    (msg,) = came
    assert (["X"], b"body") == (list(msg.headers), msg.data)


def test_nothing_in_an_event_can_begin_another_one_of_the_stream() -> None:
    """A worker's JSON may hold line ends: escaped ones in its texts, and raw ones between its tokens."""
    event = encode(StepCompleted(run_id=OTHER, step_id="a", worker_id="w\n\nevent: forged\ndata: {}\r\n\n"))
    for data in (event, event.replace(b",", b"\n\n,\r\n\r\n")):
        message = _message(Stored(names.stored_subject(OTHER), 7, 0.0, data), Show(tokens=True, payload_max=None))
        lines = message.serialize().decode().splitlines()
        assert ["data", "event", "id"] == sorted(line.partition(":")[0] for line in lines if line)
        assert "event: step.completed" in lines


def test_no_label_of_a_metric_can_write_a_line_of_its_own() -> None:
    metric, hostile = METRICS["penstock_run_events_total"], 'a"} 1\npenstock_forged{x="\\'
    page = (
        MetricPages()
        .page(
            [ProcessReport("p", hostile, 1, "l", "", [Sample(metric.name, 1, dict.fromkeys(metric.labels, hostile))])],
            [],
        )
        .decode()
    )
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert "penstock_forged" not in {sample.name for sample in found}
    assert hostile in {value for sample in found for value in sample.labels.values()}
