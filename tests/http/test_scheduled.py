"""Runs that wait for their time: started then, or cancelled before, and never both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec.structs import replace

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, Settings
from penstock.engine.run.events import Event, WorkflowCancelled, WorkflowStarted, decode
from penstock.http.app import create_app
from tests.support.clocks import set_clock
from tests.support.conductor import Conductor
from tests.support.waiting import until

LATER = "2099-01-01T00:00:00Z"
DAY = timedelta(days=1)


async def test_a_run_in_the_future_is_scheduled_and_shown_as_such(http: ASGIConductor) -> None:
    answer = await _start(http, {"workflow": "two", "input": {"n": 1}, "run_at": "2099-01-01T02:00:00+02:00"})
    run_id = answer.json["run_id"]
    assert (201, {"run_id": run_id, "status": "scheduled"}) == (answer.status_code, answer.json)
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("scheduled", "2099-01-01T00:00:00.000000Z", {"n": 1}) == (run["status"], run["run_at"], run["input"])
    assert {"status": "pending", "attempts": 0} == run["steps"]["a"]
    assert "started_at" not in run
    found = await http.simulate_get(f"/runs/{run_id}/scheduled")
    expected = {"run_id", "workflow_id", "status", "run_at", "created_at", "input"}
    assert (200, expected) == (found.status_code, found.json.keys())
    assert {name: run[name] for name in expected} == found.json


async def test_a_scheduled_run_starts_at_its_time_with_its_input(http: ASGIConductor, store: Store) -> None:
    run_at = datetime.now(UTC) + timedelta(seconds=3)
    run_id = await _scheduled(http, run_at, [1, "two"])
    [event] = [event for event in await _started(store, [run_id]) if isinstance(event, WorkflowStarted)]
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("running", [1, "two"], run["run_at"]) == (run["status"], run["input"], run["started_at"])
    assert run["created_at"] < run["run_at"] == event.timestamp
    stored = (await store.history.read(run_id))[-1]
    assert 0 <= stored.at - run_at.timestamp() < 0.25
    assert await store.reader.one(names.HISTORY, names.start_subject(run_id)) is None


async def test_more_than_a_second_ahead_is_scheduled_and_less_is_not(http: ASGIConductor) -> None:
    now = await _start(http, {"workflow": "one", "run_at": _in(timedelta(seconds=0.99))})
    assert "status" not in now.json
    answer = await _start(http, {"workflow": "one", "run_at": _in(timedelta(seconds=30))})
    assert "scheduled" == answer.json["status"]


async def test_what_has_started_is_no_scheduled_run_any_more(http: ASGIConductor, store: Store) -> None:
    run_id = await _scheduled(http, datetime.now(UTC) + timedelta(seconds=3))  # in less than one it starts at once
    await _started(store, [run_id])
    for method, status in (("GET", 404), ("DELETE", 400)):
        answer = await http.simulate_request(method, f"/runs/{run_id}/scheduled")
        assert (status, f"run {run_id} is not scheduled: it is running\n") == (answer.status_code, answer.text)
    assert "running" == await _status(http, run_id)


async def test_a_scheduled_run_that_is_deleted_is_cancelled_and_never_starts(http: ASGIConductor, store: Store) -> None:
    run_id = await _scheduled(http, LATER)
    answer = await http.simulate_delete(f"/runs/{run_id}/scheduled")
    assert (200, {"status": "cancelled"}) == (answer.status_code, answer.json)
    assert "cancelled" == await _status(http, run_id)
    assert await store.reader.one(names.HISTORY, names.start_subject(run_id)) is None
    assert 404 == (await http.simulate_get(f"/runs/{run_id}/scheduled")).status_code
    again = await http.simulate_delete(f"/runs/{run_id}/scheduled")
    assert (400, f"run {run_id} is not scheduled: it is cancelled\n") == (again.status_code, again.text)


async def test_of_many_that_delete_one_run_exactly_one_succeeds(http: ASGIConductor, store: Store) -> None:
    run_id = await _scheduled(http, LATER)
    answers = await asyncio.gather(*(http.simulate_delete(f"/runs/{run_id}/scheduled") for _ in range(50)))
    assert [200] + [400] * 49 == sorted(answer.status_code for answer in answers)
    assert 2 == len(await store.history.read(run_id))


@pytest.mark.parametrize("run_id", ["0" * 32, "xyz", "F" * 32])
async def test_what_is_no_run_is_404_to_get_and_400_to_delete(http: ASGIConductor, run_id: str) -> None:
    assert 404 == (await http.simulate_get(f"/runs/{run_id}/scheduled")).status_code
    answer = await http.simulate_delete(f"/runs/{run_id}/scheduled")
    assert 400 == answer.status_code
    assert "does not exist" in answer.text


async def test_cancel_works_on_a_scheduled_run_and_again(http: ASGIConductor, store: Store) -> None:
    run_id = await _scheduled(http, LATER)
    for _ in range(2):
        answer = await http.simulate_post(f"/runs/{run_id}/cancel", body=b'{"reason":"too late"}')
        assert (200, {"status": "cancelled", "run_id": run_id}) == (answer.status_code, answer.json)
    assert [2, None] == [
        len(await store.history.read(run_id)),
        await store.reader.one(names.HISTORY, names.start_subject(run_id)),
    ]


async def test_a_key_gives_one_scheduled_run(http: ASGIConductor, store: Store) -> None:
    request, key = {"workflow": "one", "input": 1, "run_at": LATER}, {"Idempotency-Key": "scheduled 1"}
    first, again = await _start(http, request, key), await _start(http, {**request, "input": 2}, key)
    assert (201, first.json) == (again.status_code, again.json)
    assert "scheduled" == first.json["status"]
    assert 1 == (await http.simulate_get(f"/runs/{first.json['run_id']}")).json["input"]
    assert 1 == len(await store.history.read(first.json["run_id"]))


async def test_a_key_of_a_run_that_was_started_at_once_does_not_schedule_it(http: ASGIConductor) -> None:
    key = {"Idempotency-Key": "scheduled 2"}
    first = await _start(http, {"workflow": "one"}, key)
    assert first.json == (await _start(http, {"workflow": "one", "run_at": LATER}, key)).json
    assert "running" == await _status(http, first.json["run_id"])


async def test_a_key_of_a_scheduled_run_does_not_start_it_at_once(http: ASGIConductor) -> None:
    key = {"Idempotency-Key": "scheduled 3"}
    first = await _start(http, {"workflow": "one", "run_at": LATER}, key)
    assert first.json["run_id"] == (await _start(http, {"workflow": "one"}, key)).json["run_id"]
    assert "scheduled" == await _status(http, first.json["run_id"])


async def test_many_that_schedule_under_one_key_make_one_run(http: ASGIConductor, store: Store) -> None:
    request, key = {"workflow": "one", "run_at": LATER}, {"Idempotency-Key": "scheduled 4"}
    answers = await asyncio.gather(*(_start(http, request, key) for _ in range(20)))
    [run_id] = {answer.json["run_id"] for answer in answers}
    assert 1 == len(await store.history.read(run_id))


async def test_an_input_is_checked_before_a_run_is_scheduled(http: ASGIConductor, store: Store) -> None:
    before = await store.history.last_seq()
    answer = await _start(http, {"workflow": "typed", "input": {"n": "x"}, "run_at": "tomorrow"})
    assert 400 == answer.status_code
    assert ["run_at must be", "input.n: "] == [
        line[: len(start)]
        for line, start in zip(answer.text.splitlines(), ("run_at must be", "input.n: "), strict=True)
    ]
    assert before == await store.history.last_seq()


async def test_a_hundred_years_ahead_is_the_most(http: ASGIConductor, store: Store) -> None:
    """The broker's clock ends in 2262: a schedule beyond that would fire at once."""
    run_id = await _scheduled(http, datetime.now(UTC) + 36_499 * DAY)
    assert "scheduled" == await _status(http, run_id)
    before = await store.history.last_seq()
    answer = await _start(http, {"workflow": "one", "run_at": _in(36_501 * DAY)})
    assert 400 == answer.status_code
    assert "100 years" in answer.text
    assert before == await store.history.last_seq()


@pytest.fixture
async def forgetful(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    """An application whose history is kept for two days."""
    settings = Settings(broker=replace(broker_settings, history_max_age=2 * DAY.total_seconds()))
    async with Conductor(create_app(settings)) as conductor:
        yield conductor


async def test_a_time_at_which_the_schedule_would_be_forgotten_is_refused(
    forgetful: ASGIConductor, store: Store
) -> None:
    assert 201 == (await _start(forgetful, {"workflow": "one", "run_at": _in(DAY)})).status_code
    before = await store.history.last_seq()
    answer = await _start(forgetful, {"workflow": "one", "run_at": _in(3 * DAY)})
    assert 400 == answer.status_code
    assert "history_max_age (48h)" in answer.text
    assert before == await store.history.last_seq()


async def test_a_sleep_that_outlasts_the_history_is_refused(forgetful: ASGIConductor, http: ASGIConductor) -> None:
    nap = {"id": "nap", "type": "sleep", "config": {"duration": "72h"}}
    body = orjson.dumps({"name": "sleeper", "steps": [nap]})
    answer = await forgetful.simulate_post("/workflows", body=body)
    problem = "config: duration 72h is longer than history_max_age (48h) keeps the run's events"
    assert (400, f'step "nap": {problem}\n') == (answer.status_code, answer.text)
    assert 201 == (await http.simulate_post("/workflows", body=body)).status_code


async def test_every_wait_that_outlasts_the_history_is_refused_at_once(
    forgetful: ASGIConductor, http: ASGIConductor
) -> None:
    wait = {"id": "paid", "type": "wait_for_event", "config": {"event": "paid", "timeout": "72h"}}
    ask = {"id": "ok", "type": "approval", "config": {"timeout": "49h"}}
    body = orjson.dumps({"name": "waiter", "steps": [wait, ask]})
    answer = await forgetful.simulate_post("/workflows", body=body)
    kept = "is longer than history_max_age (48h) keeps the run's events"
    problems = [f'step "paid": config: timeout 72h {kept}', f'step "ok": config: timeout 49h {kept}']
    assert (400, problems) == (answer.status_code, answer.text.rstrip("\n").replace("; ", "\n").split("\n"))
    assert 201 == (await http.simulate_post("/workflows", body=body)).status_code


async def test_a_front_end_whose_clock_is_ahead_neither_starts_a_run_early_nor_lets_its_schedule_be_forgotten(
    http: ASGIConductor, forgetful: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, DAY.total_seconds())
    run_id = await _scheduled(http, _in(timedelta(hours=1)))
    assert 1 == len(await store.history.read(run_id))
    answer = await _start(forgetful, {"workflow": "one", "run_at": _in(2.5 * DAY)})
    assert (400, True) == (answer.status_code, "history_max_age (48h)" in answer.text)


@pytest.mark.usefixtures("index")
async def test_scheduled_runs_are_listed_at_once_and_as_running_once_they_are(
    http: ASGIConductor, store: Store
) -> None:
    run_id = await _scheduled(http, datetime.now(UTC) + timedelta(seconds=3))
    assert run_id in await _listed(http, "scheduled")
    await _started(store, [run_id])
    assert run_id in await _listed(http, "running")
    assert run_id not in await _listed(http, "scheduled")


async def test_deleting_and_starting_from_both_ends_agree_where_they_meet(http: ASGIConductor, store: Store) -> None:
    """They start one after the other from the first on, and are deleted from the last on."""
    first = datetime.now(UTC) + timedelta(seconds=3)
    run_ids = await asyncio.gather(*(_scheduled(http, first + timedelta(milliseconds=n)) for n in range(400)))
    await _started(store, run_ids[:1])
    deleted, refused = await _delete_all(http, run_ids[::-1])
    assert run_ids[0] in refused
    assert run_ids[-1] in deleted
    await _agree(store, http, deleted, refused)


@pytest.mark.parametrize("verb", ["delete", "cancel"])
async def test_what_is_due_at_one_instant_and_deleted_then_is_started_or_cancelled(
    http: ASGIConductor, store: Store, verb: str
) -> None:
    instant = datetime.now(UTC) + timedelta(seconds=3)
    sentinel = await _scheduled(http, instant - timedelta(milliseconds=60))
    run_ids = await asyncio.gather(*(_scheduled(http, instant) for _ in range(400)))
    await _started(store, [sentinel])
    if verb == "delete":
        deleted, refused = await _delete_all(http, run_ids)
        assert 400 == len(deleted) + len(refused)
        await _agree(store, http, deleted, refused)
    else:
        for run_id in run_ids:
            assert 200 == (await http.simulate_post(f"/runs/{run_id}/cancel")).status_code
        assert {"cancelled"} == {await _status(http, run_id) for run_id in run_ids}


async def _agree(store: Store, http: ASGIConductor, deleted: Sequence[str], refused: Sequence[str]) -> None:
    """A start that the broker has taken up already comes behind the cancellation, and changes nothing."""
    for run_id in deleted:
        _, end, *late = await _events(store, run_id)
        assert isinstance(end, WorkflowCancelled)
        assert {WorkflowStarted} >= {type(event) for event in late}
        run = (await http.simulate_get(f"/runs/{run_id}")).json
        assert ("cancelled", False) == (run["status"], "started_at" in run)
    for event in await _started(store, refused):
        assert isinstance(event, WorkflowStarted)
        assert "running" == await _status(http, event.run_id)


async def _delete_all(http: ASGIConductor, run_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which were deleted, and which could not be."""
    found: dict[int, list[str]] = {200: [], 400: []}
    waiting = iter(run_ids)

    async def deleter() -> None:
        for run_id in waiting:
            found[(await http.simulate_delete(f"/runs/{run_id}/scheduled")).status_code].append(run_id)

    await asyncio.gather(*(deleter() for _ in range(4)))
    return found[200], found[400]


async def _started(store: Store, run_ids: Sequence[str]) -> list[Event]:
    """The last events of the runs' histories, as soon as each has more than the first."""

    async def last(run_id: str) -> Event | None:
        events = await _events(store, run_id)
        return events[-1] if len(events) > 1 else None

    return [event for run_id in run_ids if (event := await until(lambda: last(run_id)))]  # noqa: B023 - awaited at once


async def _events(store: Store, run_id: str) -> list[Event]:
    return [decode(stored.data) for stored in await store.history.read(run_id)]


async def _start(http: ASGIConductor, request: dict[str, Any], headers: dict[str, str] | None = None) -> Result:
    return await http.simulate_post("/runs", body=orjson.dumps(request), headers=headers)


async def _scheduled(http: ASGIConductor, run_at: datetime | str, value: object = None) -> str:
    answer = await _start(http, {"workflow": "one", "input": value, "run_at": run_at})
    assert "scheduled" == answer.json["status"]
    return str(answer.json["run_id"])


async def _status(http: ASGIConductor, run_id: str) -> str:
    return str((await http.simulate_get(f"/runs/{run_id}")).json["status"])


async def _listed(http: ASGIConductor, status: str) -> list[str]:
    return [run["run_id"] for run in (await http.simulate_get(f"/runs?status={status}")).json]


def _in(ahead: timedelta) -> str:
    return (datetime.now(UTC) + ahead).isoformat()
