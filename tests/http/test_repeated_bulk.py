"""Bulk requests that are sent twice: with a key they are the first one, and `once` starts no run again that was started
again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from uuid_utils import uuid4

from penstock.actors.control.rerunning import Definition
from penstock.actors.control.retry import Plan, keep, rerun, with_latest
from penstock.actors.control.run_operations import now
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.engine.run.event_payloads import RunFailure
from penstock.engine.run.events import Event, WorkflowFailed, WorkflowRemoved
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

pytestmark = pytest.mark.usefixtures("index")


@pytest.fixture
async def workflow(http: ASGIConductor, store: Store) -> str:
    """A workflow of the test's own."""
    name = f"w{uuid4().hex}"
    await store.definitions.register(parse({**ONE_STEP, "name": name}))
    return name


@pytest.fixture
def key() -> str:
    return uuid4().hex


class TestStart:
    async def test_the_same_key_and_workflow_answer_what_the_first_one_did(
        self, http: ASGIConductor, workflow: str, key: str
    ) -> None:
        first = await _start(http, workflow, [1, 2, 3], key)
        again = await _start(http, workflow, [1, 2, 3], key)
        assert (201, 201, first.json) == (first.status_code, again.status_code, again.json)
        assert first.headers["penstock-seq"] == again.headers["penstock-seq"]
        assert set(first.json["run_ids"]) == await _listed(http, workflow)

    async def test_another_key_or_workflow_starts_others(self, http: ASGIConductor, workflow: str, key: str) -> None:
        answers = [
            await _start(http, workflow, [1], key),
            await _start(http, workflow, [1], key + "2"),
            await _start(http, "one", [1], key),
        ]
        assert 3 == len({answer.json["run_ids"][0] for answer in answers})

    async def test_a_key_of_a_single_start_is_another_one(self, http: ASGIConductor, workflow: str, key: str) -> None:
        headers = {"Idempotency-Key": key}
        one = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow}), headers=headers)
        assert one.json["run_id"] not in (await _start(http, workflow, [1], key)).json["run_ids"]

    @pytest.mark.parametrize("count", [1, 2, 4, 1000])
    async def test_another_number_of_inputs_is_a_conflict_and_starts_nothing(
        self, http: ASGIConductor, store: Store, workflow: str, key: str, count: int
    ) -> None:
        await _start(http, workflow, [1, 2, 3], key)
        before = await store.history.last_seq()
        answer = await _start(http, workflow, [1] * count, key)
        assert (409, before) == (answer.status_code, await store.history.last_seq())
        assert "another number of inputs" in answer.text

    async def test_runs_that_are_missing_at_the_end_are_started_by_a_repeat(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        """The broker was full when a part was stored, or they were removed long ago."""
        run_ids = (await _start(http, workflow, [1, 2, 3, 4, 5], key)).json["run_ids"]
        kept = [await store.history.first_seq(run_id) for run_id in run_ids[:3]]
        for run_id in run_ids[3:]:
            await store.history.erase(await store.history.first_seq(run_id))
        answers = await asyncio.gather(*(_start(http, workflow, [1, 2, 3, 4, 5], key) for _ in range(3)))
        assert {201} <= {answer.status_code for answer in answers} <= {201, 503}
        assert 201 == (again := await _start(http, workflow, [1, 2, 3, 4, 5], key)).status_code
        assert run_ids == again.json["run_ids"]
        assert kept == [await store.history.first_seq(run_id) for run_id in run_ids[:3]]
        assert [1] * 5 == [len(await store.history.read(run_id)) for run_id in run_ids]
        assert 409 == (await _start(http, workflow, [1, 2, 3, 4, 5, 6], key)).status_code

    async def test_nothing_is_started_beside_what_was_no_part_of_the_bulk(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        """As the trace of a removed run: the number of the runs is not known."""
        run_ids = (await _start(http, workflow, [1, 2, 3], key)).json["run_ids"]
        last = WorkflowRemoved(run_id=run_ids[2], timestamp=now())
        await store.history.erase(await store.history.first_seq(run_ids[2]))
        await store.history.append(last)
        before = await store.history.last_seq()
        assert run_ids == (await _start(http, workflow, [1, 2, 3], key)).json["run_ids"]
        assert [409, 409] == [(await _start(http, workflow, [1] * count, key)).status_code for count in (2, 4)]
        assert before == await store.history.last_seq()

    async def test_of_many_at_once_one_starts_the_runs_and_all_get_their_ids(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        before = await store.history.last_seq()
        answers = await asyncio.gather(*(_start(http, workflow, [None] * 50, key) for _ in range(8)))
        assert [answers[0].json] * 8 == [answer.json for answer in answers]
        assert 50 == await store.history.last_seq() - before


class TestOnce:
    async def test_a_run_that_was_rerun_is_skipped_and_the_other_is_named(
        self, http: ASGIConductor, store: Store, workflow: str
    ) -> None:
        run_ids = await _failed(http, store, workflow, 3)
        first = await _retry(http, workflow, once=True)
        assert (run_ids, []) == (_originals(first), first.json["skipped"])
        again = await _retry(http, workflow, once=True)
        reasons = {one["original_run_id"]: f"already rerun as {one['new_run_id']}" for one in first.json["retried"]}
        assert ([], 3) == (again.json["retried"], again.json["total"])
        assert reasons == {one["run_id"]: one["reason"] for one in again.json["skipped"]}

    async def test_without_it_every_call_starts_them_again(
        self, http: ASGIConductor, store: Store, workflow: str
    ) -> None:
        run_ids = await _failed(http, store, workflow, 2)
        answers = [await _retry(http, workflow) for _ in range(2)]
        assert [run_ids, run_ids] == [_originals(answer) for answer in answers]
        assert 4 == len({one["new_run_id"] for answer in answers for one in answer.json["retried"]})

    async def test_a_rerun_without_it_counts_too(self, http: ASGIConductor, store: Store, workflow: str) -> None:
        [run_id] = await _failed(http, store, workflow, 1)
        [new] = (await _retry(http, workflow)).json["retried"]
        again = await _retry(http, workflow, once=True)
        assert [{"run_id": run_id, "reason": f"already rerun as {new['new_run_id']}"}] == again.json["skipped"]

    async def test_a_rerun_that_failed_is_rerun_itself(self, http: ASGIConductor, store: Store, workflow: str) -> None:
        [run_id] = await _failed(http, store, workflow, 1)
        [new] = (await _retry(http, workflow, once=True)).json["retried"]
        await _fail(store, [new["new_run_id"]])
        again = await _retry(http, workflow, once=True)
        assert ([new["new_run_id"]], [run_id]) == (_originals(again), [one["run_id"] for one in again.json["skipped"]])

    async def test_of_many_at_once_one_starts_each_run(self, http: ASGIConductor, store: Store, workflow: str) -> None:
        run_ids = await _failed(http, store, workflow, 49)
        answers = await asyncio.gather(*(_retry(http, workflow, once=True) for _ in range(5)))
        assert run_ids == sorted(run_id for answer in answers for run_id in _originals(answer))
        assert 98 == len(await _listed(http, workflow))

    async def test_more_than_are_read_at_a_time_start_together(
        self, http: ASGIConductor, store: Store, workflow: str
    ) -> None:
        run_ids = await _failed(http, store, workflow, 120)
        before = await store.history.last_seq()
        answer = await _retry(http, workflow)
        assert (run_ids, []) == (_originals(answer), answer.json["skipped"])
        started = [await store.history.first_seq(one["new_run_id"]) for one in answer.json["retried"]]
        assert list(range(before + 1, before + 121)) == started

    async def test_large_inputs_start_in_several_batches(
        self, http: ASGIConductor, store: Store, workflow: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_ids = await _failed(http, store, workflow, 5)
        monkeypatch.setattr("penstock.actors.control.retry.BATCH_BYTES_MAX", 9)  # two inputs of null
        sizes, append_first = list[int](), History.append_first

        async def counted(self: History, events: Sequence[Event]) -> int:
            sizes.append(len(events))
            return await append_first(self, events)

        monkeypatch.setattr(History, "append_first", counted)
        assert run_ids == _originals(await _retry(http, workflow))
        assert [2, 2, 1] == sizes

    async def test_a_dry_run_lists_the_runs_that_would_be_skipped(
        self, http: ASGIConductor, store: Store, workflow: str
    ) -> None:
        await _failed(http, store, workflow, 1)
        await _retry(http, workflow, once=True)
        answer = await _retry(http, workflow, once=True, dry_run=True)
        assert ([], 1) == (answer.json["retried"], len(answer.json["skipped"]))


class TestRerun:
    @pytest.mark.parametrize("once", [False, True])
    async def test_the_same_key_answers_what_the_first_one_did(
        self, http: ASGIConductor, store: Store, workflow: str, key: str, once: bool
    ) -> None:
        run_ids = await _failed(http, store, workflow, 3)
        first = await _retry(http, workflow, key, once=once)
        await _failed(http, store, workflow, 1)  # it matches, and came later
        again = await _retry(http, workflow, key, once=once)
        assert (run_ids, first.json) == (_originals(first), again.json)
        assert 7 == len(await _listed(http, workflow))

    async def test_another_key_starts_them_again(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        [run_id] = await _failed(http, store, workflow, 1)
        answers = [await _retry(http, workflow, key), await _retry(http, workflow, key + "2")]
        assert [[run_id]] * 2 == [_originals(answer) for answer in answers]
        assert 3 == len(await _listed(http, workflow))

    async def test_a_key_that_was_used_for_another_selection_is_a_conflict(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        await _failed(http, store, workflow, 1)
        await _retry(http, workflow, key)
        answer = await _retry(http, workflow, key, after="2001-01-01T00:00:00Z")
        assert 409 == answer.status_code
        assert "another after, before or once" in answer.text

    async def test_a_repeat_of_what_died_half_way_starts_the_rest_and_nothing_twice(
        self, http: ASGIConductor, store: Store, workflow: str, key: str
    ) -> None:
        run_ids = await _failed(http, store, workflow, 4)
        plan = await keep(store, workflow, key, Plan(run_ids, wanted="None None False"))
        latest = with_latest(store, Definition(*await store.definitions.latest(workflow), None))
        begun = await rerun(store, workflow, Plan(run_ids[:2]), latest, dry_run=False, key=key)
        answer = await _retry(http, workflow, key)
        assert (run_ids, []) == (_originals(answer), answer.json["skipped"])
        new = {one["original_run_id"]: one["new_run_id"] for one in answer.json["retried"]}
        assert {one.original_run_id: one.new_run_id for one in begun.retried}.items() <= new.items()
        assert 8 == len(await _listed(http, workflow))
        assert new == {run.rerun_of: run.run_id for run in await load_many(store, list(new.values()))}
        assert plan.run_ids == run_ids

    async def test_a_dry_run_uses_no_key_up(self, http: ASGIConductor, store: Store, workflow: str, key: str) -> None:
        run_ids = await _failed(http, store, workflow, 1)
        await _retry(http, workflow, key, dry_run=True)
        run_ids += await _failed(http, store, workflow, 1)
        assert sorted(run_ids) == _originals(await _retry(http, workflow, key))

    async def test_a_wrong_key_of_a_dry_run_is_refused_as_of_any_other(
        self, http: ASGIConductor, workflow: str
    ) -> None:
        for dry_run in (True, False):
            answer = await _retry(http, workflow, "k" * 256, dry_run=dry_run)
            assert (400, "Idempotency-Key must be 1 to 255 printable ASCII characters\n") == (
                answer.status_code,
                answer.text,
            )


async def _start(http: ASGIConductor, workflow: str, inputs: list[Any], key: str) -> Result:
    body = orjson.dumps({"workflow_id": workflow, "inputs": inputs})
    return await http.simulate_post("/runs/bulk", body=body, headers={"Idempotency-Key": key})


async def _retry(http: ASGIConductor, workflow: str, key: str | None = None, **more: Any) -> Result:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http.simulate_post(
        "/runs/retry", body=orjson.dumps({"workflow_id": workflow, "mode": "rerun", **more}), headers=headers
    )


async def _failed(http: ASGIConductor, store: Store, workflow: str, count: int) -> list[str]:
    """Runs that failed, as their logs tell; in ascending order."""
    body = orjson.dumps({"workflow_id": workflow, "inputs": [None] * count})
    run_ids: list[str] = (await http.simulate_post("/runs/bulk", body=body)).json["run_ids"]
    await _fail(store, run_ids)
    return sorted(run_ids)


async def _fail(store: Store, run_ids: list[str]) -> None:
    failed = [WorkflowFailed(run_id=run_id, timestamp=now(), payload=RunFailure("no paper")) for run_id in run_ids]
    await store.history.append_all(failed)


async def _listed(http: ASGIConductor, workflow: str) -> set[str]:
    return {run["run_id"] for run in (await http.simulate_get(f"/runs?workflow={workflow}")).json}


def _originals(answer: Result) -> list[str]:
    return sorted(one["original_run_id"] for one in answer.json["retried"])
