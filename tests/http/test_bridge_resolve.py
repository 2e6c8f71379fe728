"""Resolving a polled task: every action, from any process, exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec
import orjson
import pytest
from msgspec import UNSET

from penstock.broker.records.leases import Lease
from penstock.broker.store import Store
from penstock.broker.worker_protocol import reports
from penstock.config.limits import PAUSE_MS_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.events import Event, StepCompleted, StepContinue, StepFailed, StepStarted, decode
from penstock.engine.times import rfc3339
from tests.http.bridge import frames, leased, poll, polled, resolve
from tests.support.waiting import until, until_true
from tests.worker.task_queue import acknowledged, answer, dispatch, output_of, reported, taking, waiting

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "checkpoint": {"data": 1},
    "fail": {"error": "e"},
    "pause": {"duration_ms": 0},
}


async def test_complete_is_published_then_acknowledged_and_only_once(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task, {"n": 1})
    async with frames(store, task=task) as seen:
        found = await polled(bridge, task, worker_id="w-1")
        assert (await resolve(bridge, found, "complete", output={"m": 2})).json() == {"status": "ok"}
        await until_true(lambda: seen == [b"+ACK"])
    *before, last = await reported(store, run_id)
    assert isinstance(last, StepCompleted)
    assert all(isinstance(event, StepStarted) for event in before)
    assert (last.worker_id, last.attempt_number, output_of(last)) == ("w-1", 1, {"m": 2})
    await acknowledged(store, task)
    again = await resolve(bridge, found, "complete", output=3)
    assert (404, f'task "{run_id}.s" is not among the polled tasks\n') == (again.status_code, again.text)


async def test_an_answer_that_comes_later_is_behind_the_start(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task, worker_id="w-1")
    kept = await leased(store, found)
    assert 200 == (await resolve(bridge, found, "complete", output=1)).status_code
    first, last = await reported(store, run_id)
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepCompleted)
    assert (first.worker_id, first.timestamp, last.started_at) == ("w-1", rfc3339(kept.lease.seen_at), None)


async def test_a_task_of_a_planned_step_has_a_longer_id_than_a_definition_may_have(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    step_id = f"{'p' * 128}.{'s' * 128}.7"
    run_id = await dispatch(store, task, step_id=step_id)
    found = await polled(bridge, task)
    assert f"{run_id}.{step_id}" == found["task_id"]
    assert 200 == (await resolve(bridge, found, "complete", output=1)).status_code


async def test_any_process_resolves(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task, worker_id="w-2")
    assert 200 == (await resolve(other, found, "complete", output="x")).status_code
    event = await answer(store, run_id)
    assert (output_of(event), event.worker_id) == ("x", "w-2")
    assert 404 == (await resolve(bridge, found, "complete")).status_code
    assert 404 == (await resolve(other, found, "heartbeat")).status_code


async def test_of_many_answers_at_once_one_counts(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    answers = await asyncio.gather(*(resolve((bridge, other)[n % 2], found, "complete", output=n) for n in range(20)))
    assert [200] + [404] * 19 == sorted(one.status_code for one in answers), {one.text for one in answers}
    winner = next(n for n, one in enumerate(answers) if one.status_code == 200)
    assert output_of(await answer(store, run_id)) == winner
    completed = [stored for stored in await store.history.read(run_id) if b"step.completed" in stored.data]
    assert 1 == len(completed)


async def test_fail_reports_its_kind(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task, attempt=2)
    found = await polled(bridge, task)
    assert (
        200
        == (
            await resolve(bridge, found, "fail", error="busy", failure_type="retry_after", retry_after_ms=1500)
        ).status_code
    )
    event = await answer(store, run_id)
    assert isinstance(event, StepFailed)
    assert ("busy", "retry_after", 1500) == (
        event.payload.error,
        event.payload.failure_type,
        event.payload.retry_after_ms,
    )
    assert (2, None) == (event.attempt_number, event.worker_id)
    await acknowledged(store, task)


async def test_complete_without_output_has_none(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    for fields in ({}, {"output": None}):
        run_id = await dispatch(store, task)
        assert 200 == (await resolve(bridge, await polled(bridge, task), "complete", **fields)).status_code
        event = await answer(store, run_id)
        assert isinstance(event, StepCompleted)
        assert event.payload is UNSET


async def test_complete_with_an_empty_error_is_none(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task)
    assert 200 == (await resolve(bridge, await polled(bridge, task), "complete", output=1, error="")).status_code
    assert 1 == output_of(await answer(store, run_id))


async def test_error_is_cut_at_8_kib_wherever_it_falls(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task)
    assert 200 == (await resolve(bridge, await polled(bridge, task), "fail", error="x" + "ü" * 8000)).status_code
    event = await answer(store, run_id)
    assert isinstance(event, StepFailed)
    assert "x" + "ü" * 4095 == event.payload.error


async def test_continue_carries_its_output_to_the_next_iteration(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task, iteration=3)
    found = await polled(bridge, task)
    assert 3 == found["iteration"]
    assert 200 == (await resolve(bridge, found, "continue", output={"draft": 4})).status_code
    last = (await reported(store, run_id, lambda event: isinstance(event, StepContinue)))[-1]
    assert isinstance(last, StepContinue)
    assert isinstance(last.payload, bytes | memoryview) or last.payload is not UNSET
    assert (3, {"draft": 4}) == (last.iteration, orjson.loads(bytes(last.payload)))  # type: ignore[arg-type]
    await acknowledged(store, task)


async def test_pause_keeps_its_checkpoint_and_label_and_comes_again_with_it(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task, {"n": 1})
    async with frames(store, task=task) as seen:
        found = await polled(bridge, task)
        assert "checkpoint" not in found
        assert (
            200
            == (
                await resolve(other, found, "pause", duration_ms=200, checkpoint={"page": 7}, name="rate limit")
            ).status_code
        )
        await until_true(lambda: seen == [b'-NAK {"delay": 200000000}'])
    assert 404 == (await resolve(bridge, found, "complete")).status_code
    again = await polled(other, task)
    assert (1, 2, {"page": 7}, {"n": 1}) == (again["attempt"], again["deliveries"], again["checkpoint"], again["input"])
    assert 200 == (await resolve(bridge, again, "complete", output=1)).status_code
    entry = await store.checkpoints.get(f"{run_id}.s/pause")
    assert entry is not None
    assert orjson.loads(entry.value) == {"pauses": 1, "name": "rate limit"}
    assert [StepStarted, StepCompleted] == [type(event) for event in await reported(store, run_id)][-2:]


async def test_task_given_back_at_once_is_there_for_another(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    await dispatch(store, task)
    async with frames(store, task=task) as seen:
        found = await polled(bridge, task)
        assert 200 == (await resolve(bridge, found, "pause", duration_ms=0)).status_code
        await until_true(lambda: seen == [b"-NAK"])
    again = await polled(bridge, task)
    assert 2 == again["deliveries"]
    await resolve(bridge, again, "complete")  # what stays in hand is kept alive, in the middle of other tests


async def test_paused_deliveries_do_not_count_against_the_task(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    for number in range(12):
        found = await polled(bridge, task)
        assert number + 1 == found.get("deliveries", 1)
        assert 200 == (await resolve(bridge, found, "pause", duration_ms=1, name=f"n{number}")).status_code
    assert 200 == (await resolve(bridge, await polled(bridge, task), "complete", output="at last")).status_code
    assert "at last" == output_of(await answer(store, run_id))


async def test_checkpoint_is_stored_while_the_task_stays(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    async with frames(store, task=task) as seen:
        found = await polled(bridge, task)
        assert 200 == (await resolve(other, found, "checkpoint", data=[1, 2])).status_code
        entry = await store.checkpoints.get(f"{run_id}.s")
        assert entry is not None
        assert b"[1,2]" == entry.value
        assert 200 == (await resolve(bridge, found, "checkpoint", data=None)).status_code
        assert 200 == (await resolve(other, found, "heartbeat")).status_code
        await until_true(lambda: seen.count(b"+WPI") >= 3)  # the front end sends some of its own, from time to time
        assert b"+ACK" not in seen
        assert 200 == (await resolve(bridge, found, "complete")).status_code
        await until_true(lambda: seen.count(b"+ACK") == 1)
    await dispatch(store, task, attempt=2, run_id=run_id)
    again = await polled(bridge, task)
    assert again["checkpoint"] is None
    await resolve(bridge, again, "complete")


@pytest.mark.parametrize("action", ["complete", "fail", "pause", "checkpoint", "continue", "heartbeat"])
@pytest.mark.parametrize("task_id", ["0" * 32 + ".s", "nothing", "a b", "ü", "*", ">", "x" * 300])
async def test_task_that_nobody_polled_is_404(bridge: httpx2.AsyncClient, action: str, task_id: str) -> None:
    body = {"action": action, "error": "" if action == "complete" else "e", "duration_ms": 1, "data": 1}
    found = await bridge.post(httpx2.URL(f"/v1/tasks/{task_id}/resolve"), json=body)
    assert 404 == found.status_code
    assert "is not among the polled tasks" in found.text


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        (
            {"action": "finish"},
            [
                "action must be one of complete fail pause checkpoint continue heartbeat log stream progress, "
                'not "finish"'
            ],
        ),
        ({"action": "fail"}, ["error is required"]),
        ({"action": "pause"}, ["duration_ms is required"]),
        (
            {"action": "pause", "duration_ms": PAUSE_MS_MAX + 1},
            ["duration_ms must be a whole number from 0 to 3600000, not 3600001"],
        ),
        ({"action": "pause", "duration_ms": -1}, ["duration_ms must be a whole number from 0 to 3600000, not -1"]),
        ({"action": "pause", "duration_ms": "1s"}, ["duration_ms must be a whole number, not a string"]),
        ({"action": "pause", "duration_ms": 1.5}, ["duration_ms must be a whole number, not 1.5"]),
        ({"action": "pause", "duration_ms": True}, ["duration_ms must be a whole number, not true"]),
        ({"action": "pause", "duration_ms": 1.0}, ["duration_ms must be a whole number, not 1.0"]),
        (
            {"action": "complete", "output": 1, "error": "x"},
            ["error must be empty for complete: a failed attempt is reported by fail"],
        ),
        ({"action": "checkpoint"}, ["data is required"]),
        ({"action": "complete", "outptu": 1}, ['unknown field "outptu"']),
        ({"output": 1}, ["action is required"]),
        (
            {"action": "fail", "error": 1, "name": []},
            ["error must be a string, not a number", "name must be a string, not an array"],
        ),
    ],
)
async def test_bad_resolution_names_every_offender(
    bridge: httpx2.AsyncClient, body: dict[str, Any], problems: list[str]
) -> None:
    answer = await bridge.post(f"/v1/tasks/{'0' * 32}.s/resolve", json=body)
    assert (400, problems) == (answer.status_code, answer.text.splitlines())


async def test_payload_over_its_limit_is_413_and_the_task_stays(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    for action, field in (("complete", "output"), ("continue", "output"), ("checkpoint", "data")):
        assert 413 == (await resolve(bridge, found, action, **{field: "x" * (PAYLOAD_BYTES_MAX - 1)})).status_code
    too_large = await resolve(bridge, found, "pause", duration_ms=1, checkpoint="x" * (PAYLOAD_BYTES_MAX - 1))
    assert 413 == too_large.status_code
    assert await store.checkpoints.get(f"{run_id}.s") is None
    assert 200 == (await resolve(bridge, found, "complete", output="x" * (PAYLOAD_BYTES_MAX - 2))).status_code
    assert PAYLOAD_BYTES_MAX - 2 == len(output_of(await answer(store, run_id)))


async def test_longest_pause_is_taken(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    await dispatch(store, task)
    async with frames(store, task=task) as seen:
        assert 200 == (await resolve(bridge, await polled(bridge, task), "pause", duration_ms=PAUSE_MS_MAX)).status_code
        await until_true(lambda: [one for one in seen if one != b"+WPI"] == [b'-NAK {"delay": 3600000000000}'])
    async with taking(store, task) as taken:
        assert [] == await poll(bridge, task, timeout_ms=100)
        assert taken.empty()
    assert 1 == await waiting(store, task)


async def test_late_answer_counts_until_the_newer_holder_has_answered(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    first = await polled(bridge, task, worker_id="slow")
    kept = await leased(store, first)
    await store.leases.delivery(kept.lease).give_back()  # as the broker does after its ack wait
    second = await polled(other, task, worker_id="quick")
    assert first["task_id"] == second["task_id"]

    async def is_replaced() -> bool:
        return (await leased(store, second)).revision != kept.revision

    await until(is_replaced)  # it is on its way when the poll is answered
    assert 200 == (await resolve(bridge, first, "complete", output="late, but first")).status_code
    assert 404 == (await resolve(other, second, "complete", output="second")).status_code
    assert "late, but first" == output_of(await answer(store, run_id))
    await acknowledged(store, task)


async def test_claim_of_a_dead_process_is_waited_for_and_taken_over(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    kept = await leased(store, found)
    dead = msgspec.structs.replace(kept.lease, claimed_at=time.time() - 9.5)  # half a second is left of it
    await store.leases.replace(kept, dead)
    assert 200 == (await resolve(bridge, found, "complete", output=1)).status_code
    assert 1 == output_of(await answer(store, run_id))


async def handed_out_by_the_dead(store: Store, task: str, at: float, *, told: bool = False) -> str:
    """A task that a front end handed out at this time, to w-1, and died before it told that it was begun; or just
    after. Its id."""
    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        delivery = await asyncio.wait_for(taken.get(), 10)
    lease = Lease(run_id, "s", 1, 0, delivery.reply, "w-1", at, holder="0" * 32)
    if told:  # under an id of its own, so that the broker does not drop what is told again
        await store.history.append(reports.started(lease, "w-1"), message_id=f"told-{run_id}")
    await store.leases.send(lease)
    return lease.task_id


@pytest.mark.parametrize("action", ["heartbeat", "checkpoint", "complete", "fail", "continue", "pause"])
async def test_task_of_a_dead_front_end_is_reported_as_begun_by_its_new_holder(
    store: Store, bridge: httpx2.AsyncClient, task: str, action: str
) -> None:
    at = time.time() - 3
    task_id = await handed_out_by_the_dead(store, task, at)
    actions = [action, action, "complete"] if action in ("heartbeat", "checkpoint") else [action]
    for one in actions:
        assert 200 == (await resolve(bridge, task_id, one, **FIELDS.get(one, {}))).status_code
    begun, *others = await all_told(store, task_id)
    assert isinstance(begun, StepStarted)
    assert ("w-1", 1, rfc3339(at)) == (begun.worker_id, begun.attempt_number, begun.timestamp)
    assert not any(isinstance(event, StepStarted) for event in others)


@pytest.mark.parametrize("action", ["heartbeat", "complete"])
async def test_what_a_dead_front_end_had_reported_is_not_reported_again(
    store: Store, bridge: httpx2.AsyncClient, task: str, action: str
) -> None:
    task_id = await handed_out_by_the_dead(store, task, time.time(), told=True)
    assert 200 == (await resolve(bridge, task_id, action)).status_code
    assert 1 == sum(isinstance(event, StepStarted) for event in await all_told(store, task_id))
    await resolve(bridge, task_id, "complete")


async def test_a_delivery_after_a_pause_is_reported_although_an_earlier_one_was(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        await (await asyncio.wait_for(taken.get(), 10)).give_back()
        delivery = await asyncio.wait_for(taken.get(), 10)
    lease = Lease(run_id, "s", 1, 0, delivery.reply, "w-1", time.time(), holder="0" * 32)
    await store.history.append(reports.started(lease, "w-1"))
    await store.leases.send(lease)
    assert 200 == (await resolve(bridge, lease.task_id, "heartbeat")).status_code
    begun = [event for event in await all_told(store, lease.task_id) if isinstance(event, StepStarted)]
    assert [1, 2] == [event.delivery for event in begun]
    await resolve(bridge, lease.task_id, "complete")


async def test_a_sign_of_life_hands_the_task_of_a_dead_front_end_to_another(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    task_id = await handed_out_by_the_dead(store, task, time.time())
    assert 200 == (await resolve(bridge, task_id, "heartbeat")).status_code
    kept = await store.leases.get(task_id)
    assert kept is not None
    assert "0" * 32 != kept.lease.holder
    assert 200 == (await resolve(other, task_id, "complete", output=1)).status_code
    assert 404 == (await resolve(bridge, task_id, "complete", output=2)).status_code
    assert 1 == output_of(await answer(store, kept.lease.run_id))


async def all_told(store: Store, task_id: str) -> list[Event]:
    return [decode(stored.data) for stored in await store.history.read(task_id.partition(".")[0])]


async def test_lease_is_gone_when_its_task_is(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    await dispatch(store, task)
    found = await polled(bridge, task)
    assert found["task_id"] == (await leased(store, found)).lease.task_id
    assert 200 == (await resolve(bridge, found, "complete")).status_code

    async def gone() -> bool:
        return await store.leases.get(found["task_id"]) is None

    await until(gone)
