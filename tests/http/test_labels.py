"""Labels of runs: given with a start, shown, found again; what is wrong with them is named."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.index import counting
from penstock.actors.index.run_index import RunIndex
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine.run.event_payloads import RunFailure, Started
from penstock.engine.run.events import WorkflowFailed, WorkflowStarted
from penstock.engine.validation import parse
from penstock.http import backend
from penstock.http.app import create_app
from tests.http.conftest import ONE_STEP
from tests.support.conductor import Conductor

pytestmark = pytest.mark.usefixtures("index")

ODD = [
    "",
    " ",
    ":",
    "a:b",
    "x y",
    '"',
    "'",
    "\\",
    "\x00",
    "\n",
    "\x7f",
    "%",
    "_",
    "é",
    "日本",
    "😀",
    "\u202e",
    "'; --",
    "x" * 256,
]


async def start(http: ASGIConductor, workflow: str = "one", **fields: object) -> str:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow, **fields}))
    assert 201 == answer.status_code, answer.text
    return str(answer.json["run_id"])


async def refused(http: ASGIConductor, method: str, url: str, body: object = None) -> list[str]:
    content = None if body is None else orjson.dumps(body)
    answer = await http.simulate_request(method, url, body=content)
    assert 400 == answer.status_code, answer.text
    return [str(line) for line in answer.text.splitlines()]


async def listed(http: ASGIConductor, *labels: str, **query: str) -> list[str]:
    answer = await http.simulate_get("/runs?" + urlencode([*(("label", one) for one in labels), *query.items()]))
    assert 200 == answer.status_code, answer.text
    return [run["run_id"] for run in answer.json]


async def test_a_run_shows_its_labels_and_one_without_shows_none(http: ASGIConductor) -> None:
    labelled, other = await start(http, labels={"team": "payments", "env": "prod"}), await start(http)
    assert {"team": "payments", "env": "prod"} == (await http.simulate_get(f"/runs/{labelled}")).json["labels"]
    assert "labels" not in (await http.simulate_get(f"/runs/{other}")).json
    assert "labels" not in (await http.simulate_get(f"/runs/{await start(http, labels={})}")).json


async def test_the_events_of_a_run_without_labels_do_not_know_them(http: ASGIConductor) -> None:
    found = (await http.simulate_get(f"/runs/{await start(http)}/events")).json
    assert {"workflow", "version", "digest"} == found[0]["payload"].keys() - {"input"}


async def test_all_labels_must_match(http: ASGIConductor) -> None:
    both = await start(http, labels={"a.b": "1", "c": "x:y"})
    one = await start(http, labels={"a.b": "1"})
    assert [one, both] == await listed(http, "a.b:1")
    assert [both] == await listed(http, "a.b:1", "c:x:y")
    assert [] == await listed(http, "a.b:1", "c:x")
    assert [] == await listed(http, "a.b:2")
    assert [] == await listed(http, "a:1")


@pytest.mark.parametrize("value", ODD, ids=ascii)
async def test_any_text_is_a_value_and_is_found(http: ASGIConductor, value: str) -> None:
    run_id = await start(http, labels={"odd": value})
    assert {"odd": value} == (await http.simulate_get(f"/runs/{run_id}")).json["labels"]
    assert [run_id] == await listed(http, f"odd:{value}")


async def test_a_label_goes_with_the_other_filters(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse({**ONE_STEP, "name": "filtered"}))
    first, second, third = [await start(http, "filtered", labels={"of": "filters"}) for _ in range(3)]
    other = await start(http, labels={"of": "filters"})
    await http.simulate_post(f"/runs/{second}/cancel")
    assert [other, third, second, first] == await listed(http, "of:filters")
    assert [third, second, first] == await listed(http, "of:filters", workflow="filtered")
    assert [second] == await listed(http, "of:filters", status="cancelled")
    assert [third, first] == await listed(http, "of:filters", status="running", workflow="filtered")
    assert [first] == await listed(http, "of:filters", prefix=first)
    created = (await http.simulate_get(f"/runs/{second}")).json["created_at"]
    assert [second, first] == await listed(http, "of:filters", before=created)
    assert [] == await listed(http, "of:filters", parent=first)


async def test_links_keep_every_label(http: ASGIConductor) -> None:
    run_ids = [await start(http, labels={"p": "1", "q": "2"}) for _ in range(5)]
    found: list[str] = []
    url: str | None = "/runs?label=p:1&label=q:2&limit=2"
    while url:
        answer = await http.simulate_get(url)
        found += (run["run_id"] for run in answer.json)
        link = answer.headers.get("link")
        url = None if link is None else link[1 : link.index(">")]
    assert run_ids[::-1] == found


async def test_a_text_finds_ids_and_labels(http: ASGIConductor) -> None:
    run_id = await start(http, labels={"customer": "Straße 7"})
    other = await start(http, labels={"customer": "STRASSE 8", "place": "straße"})
    assert [other, run_id] == await listed(http, q="STRASSE")
    assert [other, run_id] == await listed(http, q="customer:stra")
    assert [run_id] == await listed(http, q="straße 7")
    assert run_id in await listed(http, q=run_id[:28])  # so begin the runs of its moment
    assert [run_id] == await listed(http, q=run_id.upper())
    assert [] == await listed(http, q="100%")
    assert [other] == await listed(http, "place:straße", q="strasse")


async def test_a_scheduled_run_has_its_labels_before_it_starts(http: ASGIConductor) -> None:
    run_id = await start(http, labels={"when": "later"}, run_at="2099-01-01T00:00:00Z")
    assert [run_id] == await listed(http, "when:later", status="scheduled")
    assert {"when": "later"} == (await http.simulate_get(f"/runs/{run_id}")).json["labels"]


WRONG: list[tuple[Any, str]] = [
    ({str(n): "" for n in range(17)}, "labels has 17 entries, 16 is the most"),
    ({"a": "x" * 257}, 'labels "a" has 257 characters, 256 is the most'),
    ({"a": 1}, 'labels "a" must be a string, not a number'),
    ({"a": None}, 'labels "a" must be a string, not null'),
    ({"a": ["b"]}, 'labels "a" must be a string, not an array'),
    ({"a:b": "c"}, 'labels: key "a:b" may hold only A-Z a-z 0-9 _ - and single dots between them'),
    ({"": "c"}, "labels: key is empty"),
    ({"k" * 129: "c"}, "129 characters, 128 is the most"),
    (["a"], "labels must be an object, not an array"),
    ("a:b", "labels must be an object, not a string"),
]


@pytest.mark.parametrize(("labels", "problem"), WRONG, ids=[str(n) for n in range(len(WRONG))])
async def test_labels_that_are_wrong_are_named(http: ASGIConductor, labels: object, problem: str) -> None:
    (found,) = await refused(http, "POST", "/runs", {"workflow": "one", "labels": labels})
    assert problem in found


async def test_every_wrong_label_is_named(http: ASGIConductor) -> None:
    labels = {"a b": "x", "c": "y" * 300, "": "z"}
    found = await refused(http, "POST", "/runs", {"workflow": "one", "labels": labels})
    assert 3 == len(found)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("label=a", 'label "a" must be key:value'),
        ("label=:x", "label: key is empty"),
        ("label=a%20b:x", 'label: key "a b" may hold only'),
        ("label=a:1&label=a:1", 'label "a" is given 2 times'),
        ("label=a:1&label=a:2", 'label "a" is given 2 times'),
        ("&".join(f"label=k{n}:v" for n in range(17)), "label is given 17 times, 16 is the most"),
        (f"label=a:{'x' * 257}", 'label "a" has 257 characters'),
        ("q=", "q is empty"),
        (f"q={'x' * 257}", "q has 257 characters, 256 is the most"),
        ("q=a&q=b", "q is given 2 times"),
        ("trigger=a+b", 'trigger "a b" may hold only'),
    ],
)
@pytest.mark.parametrize("path", ["/runs", "/runs/stats"])
async def test_a_filter_that_is_wrong_is_named(http: ASGIConductor, path: str, query: str, problem: str) -> None:
    (found,) = await refused(http, "GET", f"{path}?{query}")
    assert problem in found


async def test_ten_thousand_values_of_one_request_are_refused(http: ASGIConductor) -> None:
    (found,) = await refused(http, "GET", "/runs?" + "&".join(f"label=k:{n}" for n in range(300)))
    assert "label is given 300 times, 16 is the most" == found


async def test_stats_count_by_status_and_time(http: ASGIConductor) -> None:
    run_ids = [await start(http, labels={"of": "stats"}) for _ in range(5)]
    await http.simulate_post(f"/runs/{run_ids[0]}/cancel")
    answer = (await http.simulate_get("/runs/stats?label=of:stats")).json
    assert (5, [{"running": 4, "cancelled": 1}]) == (answer["total"], [one["counts"] for one in answer["buckets"]])
    created = (await http.simulate_get(f"/runs/{run_ids[0]}")).json["created_at"]
    assert created == answer["buckets"][0]["at"]
    hours = (await http.simulate_get("/runs/stats?label=of:stats&bucket=1h")).json
    assert 5 == hours["total"] == sum(sum(one["counts"].values()) for one in hours["buckets"])
    assert all(one["at"].endswith(":00:00.000000Z") for one in hours["buckets"])
    last = (await http.simulate_get(f"/runs/{run_ids[-1]}")).json["created_at"]
    some = (await http.simulate_get(f"/runs/stats?label=of:stats&bucket=1h&after={last}&before={last}")).json
    assert 1 == some["total"]
    nothing = (await http.simulate_get("/runs/stats?label=of:nothing&bucket=1h")).json
    assert {"total": 0, "buckets": []} == nothing


async def test_stats_are_grouped_by_workflow_and_by_trigger(http: ASGIConductor) -> None:
    run_ids = [await start(http, labels={"of": "groups"}) for _ in range(3)]
    await http.simulate_post(f"/runs/{run_ids[0]}/cancel")
    answer = (await http.simulate_get("/runs/stats?label=of:groups&by=workflow&bucket=1h")).json
    [group] = answer["groups"]
    assert ("one", 3, answer["buckets"]) == (group["name"], group["total"], group["buckets"])
    assert [] == (await http.simulate_get("/runs/stats?label=of:groups&by=trigger")).json["groups"]
    assert [] == (await http.simulate_get("/runs/stats?workflow=other&by=workflow")).json["groups"]


async def test_stats_that_are_wrong_are_named_also_what_they_are_grouped_by(http: ASGIConductor) -> None:
    (found,) = await refused(http, "GET", "/runs/stats?by=colour")
    assert "by" in found


async def test_stats_within_a_time_say_how_far_back_they_go(
    broker_settings: BrokerSettings, definitions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that moves by a millisecond whenever somebody looks at it, and counting run by run."""
    monkeypatch.setattr(counting, "ROWS_FIRST", 1)
    monkeypatch.setattr(backend, "RunIndex", partial(RunIndex, clock=(ms / 1000 for ms in count()).__next__))
    async with Conductor(create_app(Settings(broker=broker_settings))) as http:
        run_ids = [await start(http, labels={"of": "within"}) for _ in range(9)]
        whole = (await http.simulate_get("/runs/stats?label=of:within")).json
        found = (await http.simulate_get("/runs/stats?label=of:within&within_ms=10")).json
        assert False is found["complete"]
        assert 1 < found["total"] < 9
        oldest = run_ids[9 - found["total"]]
        assert (await http.simulate_get(f"/runs/{oldest}")).json["created_at"] == found["since"]
        assert [(whole["buckets"][0]["at"], {"running": found["total"]})] == [
            (one["at"], one["counts"]) for one in found["buckets"]
        ]
        long = (await http.simulate_get("/runs/stats?label=of:within&within_ms=5000")).json
        assert {**whole, "complete": True} == long
        assert 9 == whole["total"]


async def test_stats_agree_with_the_list(http: ASGIConductor) -> None:
    await start(http, labels={"tier": "gold"})
    for query in ("workflow=one", "status=running", "label=tier:gold", "q=gold", "q=tier", "q=0", "prefix=00000000"):
        runs = (await http.simulate_get(f"/runs?{query}&limit=10000")).json
        for bucket in ("", "&bucket=1h"):
            assert len(runs) == (await http.simulate_get(f"/runs/stats?{query}{bucket}")).json["total"], query


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("bucket=0s", "bucket must be longer than 0s"),
        ("bucket=soon", "bucket"),
        ("bucket=1us", 'bucket "1us" is too short, 1ms is the least'),
        ("limit=3", 'unknown query parameter "limit"'),
        ("within_ms=9", 'within_ms must be a whole number from 10 to 5000, not "9"'),
        ("within_ms=100&by=workflow", "within_ms and by exclude each other"),
        ("within_ms=100&by=workflow&durations=true", "within_ms and by and durations exclude each other"),
    ],
)
async def test_stats_that_are_wrong_are_named(http: ASGIConductor, query: str, problem: str) -> None:
    (found,) = await refused(http, "GET", f"/runs/stats?{query}")
    assert problem in found


async def test_ten_million_buckets_are_refused_and_a_width_is_named(http: ASGIConductor, store: Store) -> None:
    definition, digest = await store.definitions.latest("one")
    for run_id, at in (("0" * 31 + "1", "2026-01-01T00:00:00Z"), ("0" * 31 + "2", "2026-04-26T17:46:40Z")):
        begun = Started(definition.name, definition.version, digest, labels={"far": "apart"})
        seq = await store.history.append(WorkflowStarted(run_id=run_id, timestamp=at, payload=begun))
    (found,) = await refused(http, "GET", "/runs/stats?label=far:apart&bucket=1s")
    assert "bucket makes 10000001 buckets from 2026-01-01T00:00:00.000000Z" in found
    assert "2000 is the most: use 1h23m23s or more" in found
    fits = await http.simulate_get(
        "/runs/stats?label=far:apart&bucket=1h23m23s", headers={"Penstock-Min-Seq": str(seq)}
    )
    assert (2, 2) == (fits.json["total"], len(fits.json["buckets"]))


async def started_many(http: ASGIConductor, inputs: int, **fields: object) -> list[dict[str, str] | None]:
    """The labels of each run."""
    body = orjson.dumps({"workflow_id": "one", "inputs": [*range(inputs)], **fields})
    answer = await http.simulate_post("/runs/bulk", body=body)
    assert 201 == answer.status_code, answer.text
    runs = [(await http.simulate_get(f"/runs/{run_id}")).json for run_id in answer.json["run_ids"]]
    return [run.get("labels") for run in runs]


async def test_runs_of_a_bulk_have_the_labels_of_all_and_their_own(http: ASGIConductor) -> None:
    assert [None, None] == await started_many(http, 2)
    assert [{"a": "1"}] * 2 == await started_many(http, 2, labels={"a": "1"})
    assert [{"b": "2"}, None] == await started_many(http, 2, run_labels=[{"b": "2"}, None])
    own = [{"b": "2"}, None, {"a": "3"}]
    assert [{"a": "1", "b": "2"}, {"a": "1"}, {"a": "3"}] == await started_many(
        http, 3, labels={"a": "1"}, run_labels=own
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"labels": {"a": 1}}, 'labels "a" must be a string, not a number'),
        ({"run_labels": {"a": "b"}}, "run_labels must be an array, not an object"),
        ({"run_labels": [{"a": "b"}]}, "run_labels has 1 entries, inputs has 2"),
        ({"run_labels": [None, ["a"]]}, "run_labels[1] must be an object, not an array"),
        ({"run_labels": [None, {"a": 1}]}, 'run_labels[1] "a" must be a string, not a number'),
        ({"run_labels": [None, {"a b": "x"}]}, 'run_labels[1]: key "a b" may hold only'),
        ({"run_labels": [None, {"a": "x" * 257}]}, 'run_labels[1] "a" has 257 characters, 256 is the most'),
        (
            {"labels": {f"l{n}": "" for n in range(9)}, "run_labels": [None, {f"r{n}": "" for n in range(8)}]},
            "run_labels[1] has 17 entries with labels, 16 is the most",
        ),
    ],
)
async def test_labels_of_a_bulk_that_are_wrong_are_named_and_nothing_starts(
    http: ASGIConductor, fields: dict[str, object], problem: str
) -> None:
    before = (await http.simulate_get("/runs/stats")).json["total"]
    (found,) = await refused(http, "POST", "/runs/bulk", {"workflow_id": "one", "inputs": [1, 2], **fields})
    assert problem in found
    assert before == (await http.simulate_get("/runs/stats")).json["total"]


async def test_a_bulk_cancel_takes_the_runs_with_the_labels(http: ASGIConductor) -> None:
    chosen = [await start(http, labels={"stop": "these", "n": str(n)}) for n in range(3)]
    other = await start(http, labels={"stop": "others"})
    wanted = {"workflow_id": "one", "labels": {"stop": "these"}}
    dry = (await http.simulate_post("/runs/cancel", body=orjson.dumps({**wanted, "dry_run": True}))).json
    assert (3, set(chosen)) == (dry["total"], set(dry["cancelled"]))
    part = (await http.simulate_post("/runs/cancel", body=orjson.dumps({**wanted, "limit": 1}))).json
    assert ([chosen[2]], 2) == (part["cancelled"], part["remaining"])
    both = {"workflow_id": "one", "labels": {"stop": "these", "n": "0"}}
    assert [chosen[0]] == (await http.simulate_post("/runs/cancel", body=orjson.dumps(both))).json["cancelled"]
    assert [chosen[1]] == await listed(http, "stop:these", status="running")
    assert [other] == await listed(http, "stop:others", status="running")
    (found,) = await refused(http, "POST", "/runs/cancel", {"workflow_id": "one", "labels": {"a b": "c"}})
    assert 'labels: key "a b"' in found


async def test_a_rerun_has_the_labels_of_the_run_that_failed(http: ASGIConductor, store: Store) -> None:
    failed, other = [await start(http, labels={"kind": "rerun", "n": str(n)}) for n in range(2)]
    await store.history.append(WorkflowFailed(run_id=failed, payload=RunFailure(error="x")))
    body = orjson.dumps({"workflow_id": "one", "mode": "rerun", "labels": {"kind": "rerun"}})
    (again,) = (await http.simulate_post("/runs/retry", body=body)).json["retried"]
    assert failed == again["original_run_id"]
    assert [again["new_run_id"], other, failed] == await listed(http, "kind:rerun")
    found = (await http.simulate_get(f"/runs/{again['new_run_id']}")).json
    assert ({"kind": "rerun", "n": "0"}, failed) == (found["labels"], found["rerun_of"])


async def test_a_called_run_has_the_labels_of_the_query(http: ASGIConductor) -> None:
    answer = await http.simulate_post("/workflows/one/call?timeout_ms=0&label=by:a:caller&label=x:")
    assert 202 == answer.status_code
    run_id = answer.json["run_id"]
    assert {"by": "a:caller", "x": ""} == (await http.simulate_get(f"/runs/{run_id}")).json["labels"]
    for query, problem in (("label=x", 'label "x" must be key:value'), ("label=a:1&label=a:2", "is given 2 times")):
        (found,) = await refused(http, "POST", f"/workflows/one/call?{query}")
        assert problem in found
