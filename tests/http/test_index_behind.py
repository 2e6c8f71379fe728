"""Reads answer at all times, and say how far behind the run index is of which they are made. Here nobody keeps it
up."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.index import freshness
from penstock.actors.index.file import IndexFile, IndexProgress, index_path, prepare
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP
from tests.support.own_follower import following

# less than what it waits for where it must; on a machine with nothing else to do it is a tenth of that
ANSWER_S_MAX = 0.8


@pytest.fixture
async def standing(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[IndexFile]:
    """An index that has the log up to now, and looks as if somebody kept it up."""
    tip = await store.history.tip()
    path = index_path(broker_settings.data_dir)
    prepare(path, tip.created)
    with closing(IndexFile(path)) as file:
        file.write((), IndexProgress(tip.seq, tip.at, True, time.time() + 60))
        yield file


async def test_a_read_answers_at_once_with_what_the_index_has_and_how_far_it_is_behind(
    http: ASGIConductor, store: Store, standing: IndexFile, broker_settings: BrokerSettings
) -> None:
    run_ids = [await _start(store) for _ in range(3)]
    begin = time.monotonic()
    answer = await http.simulate_get("/runs?workflow=one")
    assert time.monotonic() - begin < ANSWER_S_MAX
    assert (200, []) == (answer.status_code, answer.json)
    messages, seconds = _lag(answer)
    assert 3 == messages
    assert 0 <= seconds < 60
    as_of = datetime.fromisoformat(answer.headers["penstock-index-as-of"])
    assert abs(datetime.fromtimestamp(standing.at.as_of, UTC) - as_of) < timedelta(milliseconds=1)
    async with following(store, broker_settings):
        later = await http.simulate_get(
            "/runs?workflow=one", headers={"Penstock-Min-Seq": str(await store.history.last_seq())}
        )
    assert (run_ids[::-1], (0, 0.0)) == ([run["run_id"] for run in later.json], _lag(later))


async def test_a_read_waits_a_bounded_while_for_what_it_must_see(
    http: ASGIConductor, store: Store, standing: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "NAMED_S_MAX", 0.3)
    await _start(store)
    begin = time.monotonic()
    answer = await http.simulate_get("/runs", headers={"Penstock-Min-Seq": str(await store.history.last_seq())})
    waited = time.monotonic() - begin
    assert (200, 1) == (answer.status_code, _lag(answer)[0])
    assert 0.3 <= waited < 1.0


async def test_a_sequence_that_the_log_has_not_reached_is_not_waited_for(
    http: ASGIConductor, standing: IndexFile
) -> None:
    begin = time.monotonic()
    answer = await http.simulate_get("/runs", headers={"Penstock-Min-Seq": str(2**62)})
    assert (200, (0, 0.0)) == (answer.status_code, _lag(answer))
    assert time.monotonic() - begin < ANSWER_S_MAX


async def test_what_this_front_end_has_stored_is_waited_for_without_being_asked(
    http: ASGIConductor, store: Store, standing: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "NAMED_S_MAX", 0.3)
    started = await http.simulate_post("/runs", body=b'{"workflow":"one"}')
    assert str(await store.history.last_seq()) == started.headers["penstock-seq"]
    begin = time.monotonic()
    answer = await http.simulate_get("/runs")
    assert (200, 1) == (answer.status_code, _lag(answer)[0])
    assert time.monotonic() - begin >= 0.3


async def test_while_a_burst_drains_a_list_does_not_wait_for_all_that_was_started_here(
    http: ASGIConductor, standing: IndexFile
) -> None:
    for _ in range(2):
        await http.simulate_post("/runs/bulk", body=orjson.dumps({"workflow_id": "one", "inputs": [None] * 600}))
    begin = time.monotonic()
    answer = await http.simulate_get("/runs?limit=1")
    assert time.monotonic() - begin < ANSWER_S_MAX
    assert (200, 1200) == (answer.status_code, _lag(answer)[0])


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 30])
async def test_a_bad_sequence_is_named(http: ASGIConductor, standing: IndexFile, text: str) -> None:
    answer = await http.simulate_get("/runs", headers={"Penstock-Min-Seq": text})
    assert 400 == answer.status_code
    assert "Penstock-Min-Seq" in answer.text


async def test_bulk_operations_take_what_the_index_has(
    http: ASGIConductor, store: Store, standing: IndexFile, broker_settings: BrokerSettings
) -> None:
    await store.definitions.register(parse({**ONE_STEP, "name": "behind"}))
    known = await _start(store, "behind")
    async with following(store, broker_settings) as seen:
        await seen()
    with closing(IndexFile(index_path(broker_settings.data_dir))) as file:
        file.write((), file.at._replace(beat=time.time() + 60))
    unknown = await _start(store, "behind")
    cancelled = await http.simulate_post("/runs/cancel", body=b'{"workflow_id":"behind"}')
    assert ([known], [], 1) == (cancelled.json["cancelled"], cancelled.json["skipped"], cancelled.json["total"])
    assert 1 <= _lag(cancelled)[0]
    retried = await http.simulate_post("/runs/retry", body=b'{"workflow_id":"behind","mode":"rerun"}')
    assert (200, []) == (retried.status_code, retried.json["retried"])
    assert "running" == (await http.simulate_get(f"/runs/{unknown}")).json["status"]


async def test_every_start_answers_its_sequence_in_the_history(
    http: ASGIConductor, store: Store, standing: IndexFile
) -> None:
    one = await http.simulate_post("/runs", body=b'{"workflow":"one"}')
    many = await http.simulate_post("/runs/bulk", body=b'{"workflow_id":"one","inputs":[1,2,3]}')
    later = await http.simulate_post("/runs", body=b'{"workflow":"one","run_at":"2099-01-01T00:00:00Z"}')
    keyed = [
        await http.simulate_post("/runs", body=b'{"workflow":"one"}', headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    for answer in (one, many, later, *keyed):
        run_id = answer.json["run_ids"][-1] if "run_ids" in answer.json else answer.json["run_id"]
        assert (await store.history.read(run_id))[0].seq == int(answer.headers["penstock-seq"])


async def _start(store: Store, workflow: str = "one") -> str:
    """By somebody else: over another connection than the front end's."""
    return await run_operations.start(store, *await store.definitions.latest(workflow), Raw(orjson.dumps(None)))


def _lag(answer: Result) -> tuple[int, float]:
    messages, _, seconds = answer.headers["penstock-index-lag"].partition(";")
    return int(messages), float(seconds)
