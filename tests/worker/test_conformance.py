"""Both transports of the worker do the same: what comes of a task, and what is sent to the broker about it.

Every test runs twice: over the broker directly, and over the bridge of a front end in a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import orjson
import pytest
from msgspec import UNSET, Raw
from structlog.testing import capture_logs

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import ERROR_BYTES_MAX, MIB, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Denied, Unavailable
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import Event, SignalReceived, StepCompleted, StepContinue, StepFailed, StepStarted
from penstock.worker import BlockingContext, Context, Continue, NonRetriable, Pause, RetryAfter, Worker
from penstock.worker.transports import bridge_intake, direct_intake
from tests.http.bridge import frames, requests_waiting
from tests.support.frontends import FrontEnd, front_ends
from tests.support.waiting import until, until_true
from tests.support.world import chain, start
from tests.worker.task_queue import (
    acknowledged,
    answer,
    dispatch,
    new_run_id,
    output_of,
    put_raw,
    reported,
    taking,
    waiting,
)

TOKEN = "conformance"
NewWorker = Callable[..., Worker]


@pytest.fixture(scope="module")
def end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, TOKEN) as (started,):
        yield started


@pytest.fixture(params=["nats", "bridge"])
def new_worker(
    request: pytest.FixtureRequest, store: Store, broker_settings: BrokerSettings, end: FrontEnd
) -> NewWorker:
    def make(**options: Any) -> Worker:
        if request.param == "nats":
            return Worker(broker_url=broker_settings.url, **{"grace_s": 0.2, **options})
        return Worker(transport="bridge", url=end.url, bridge_token=TOKEN, **{"grace_s": 0.2, **options})

    return make


@pytest.fixture
def worker(new_worker: NewWorker) -> Worker:
    return new_worker(worker_id=f"w-{new_run_id()}")


async def played(
    store: Store, worker: Worker, task: str, value: Any = None, frame: bytes = b"+ACK", **more: Any
) -> list[Event]:
    """One task through the worker: its events, once it is acknowledged, and nothing else than this."""
    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, value, **more)
        events = await reported(store, run_id)
        await until_true(lambda: bool(seen))
    assert [frame] == seen
    await acknowledged(store, task)
    return events


def failure(event: Event) -> tuple[str, str]:
    assert isinstance(event, StepFailed), event
    return event.payload.failure_type, event.payload.error


async def test_completed_task(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def double(value: int) -> int:
        return value * 2

    first, last = await played(store, worker, task, 21)
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepCompleted)
    assert ("s", 1, None, worker.worker_id) == (first.step_id, first.attempt_number, first.iteration, first.worker_id)
    assert ("s", 1, None, worker.worker_id, 42) == (
        last.step_id,
        last.attempt_number,
        last.iteration,
        last.worker_id,
        output_of(last),
    )


async def test_function_in_a_thread_without_output(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def nothing() -> None:
        assert threading.current_thread() is not threading.main_thread()

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepCompleted)
    assert last.payload is UNSET


async def test_context_says_which_execution_this_is(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def facts(value: None, ctx: Context) -> dict[str, Any]:
        return {
            "of": ctx.task_id,
            "n": [ctx.attempt, ctx.iteration, ctx.deliveries],
            "flow": ctx.workflow,
            "meta": dict(ctx.metadata),
        }

    last = (await played(store, worker, task, attempt=3, iteration=2, metadata={"k": "v"}))[-1]
    assert isinstance(last, StepCompleted)
    assert {"of": f"{last.run_id}.s", "n": [3, 2, 1], "flow": "flow", "meta": {"k": "v"}} == output_of(last)
    assert (3, 2) == (last.attempt_number, last.iteration)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("no such page"), "retriable", "ValueError: no such page"),
        (NonRetriable("the invoice is void"), "non_retriable", "the invoice is void"),
        (RetryAfter(1.5, "busy"), "retry_after", "busy"),
        (SystemExit(3), "retriable", "SystemExit: 3"),
    ],
)
async def test_failed_task(store: Store, worker: Worker, task: str, error: BaseException, kind: str, text: str) -> None:
    @worker.task(task)
    def bad() -> None:
        raise error

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    assert (kind, text) == failure(last)
    assert (1500 if kind == "retry_after" else 0) == last.payload.retry_after_ms


async def test_a_failure_is_reported_with_the_last_frames_of_the_function(
    store: Store, worker: Worker, task: str
) -> None:
    def deep(level: int) -> None:
        if not level:
            raise ValueError("x" * 100_000)
        deep(level - 1)

    @worker.task(task)
    def bad() -> None:
        try:
            raise KeyError("the cause")
        except KeyError:
            deep(200)

    with capture_logs():  # which nobody has to draw
        last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    traceback = last.payload.traceback
    assert len(traceback.encode()) <= ERROR_BYTES_MAX
    assert "in deep\n" in traceback
    assert "ValueError: xxx" in traceback
    assert "penstock/worker" not in traceback


async def test_a_failure_in_one_line_has_the_functions_own_frame_only(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def bad() -> None:
        raise NonRetriable("the invoice is void")

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepFailed)
    lines = last.payload.traceback.splitlines()
    assert ("Traceback (most recent call last):", True) == (lines[0], lines[1].endswith("in bad"))
    assert (4, True) == (len(lines), lines[-1].endswith("NonRetriable: the invoice is void"))


@pytest.mark.parametrize(
    "value", [{1, 2}, "x" * PAYLOAD_BYTES_MAX, float("nan"), {"deep": [None, {"at": float("-inf")}]}]
)
async def test_output_that_cannot_be_stored_fails_for_good(store: Store, worker: Worker, task: str, value: Any) -> None:
    @worker.task(task)
    async def bad() -> Any:
        return value

    assert "non_retriable" == failure((await played(store, worker, task))[-1])[0]


async def test_largest_output_is_stored(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def large() -> Any:
        return "x" * (PAYLOAD_BYTES_MAX - 2)

    last = (await played(store, worker, task))[-1]
    assert isinstance(last, StepCompleted)
    assert PAYLOAD_BYTES_MAX - 2 == len(output_of(last))


async def test_continue_asks_for_the_next_iteration(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def draft(value: int) -> Any:
        return Continue({"draft": value + 1})

    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, 7, iteration=4)
        last = (await reported(store, run_id, lambda event: isinstance(event, StepContinue)))[-1]
        await acknowledged(store, task)
    assert [b"+ACK"] == seen
    assert isinstance(last, StepContinue)
    assert isinstance(last.payload, Raw)
    assert (4, worker.worker_id, {"draft": 8}) == (last.iteration, last.worker_id, orjson.loads(bytes(last.payload)))


async def test_pause_comes_again_with_its_checkpoint_and_uses_no_attempt(
    store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    async def waits(value: int, ctx: Context) -> Any:
        found = await ctx.load_checkpoint()
        if found is None:
            raise Pause(0.3, checkpoint={"page": value}, name="rate limit")
        return [found, ctx.attempt, ctx.deliveries]

    async with frames(store) as seen, worker.running():
        run_id = await dispatch(store, task, 5)
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert [b'-NAK {"delay": 300000000}', b"+ACK"] == seen
    assert [{"page": 5}, 1, 2] == output_of(event)
    entry = await store.checkpoints.get(names.pause_key(run_id, "s"))
    assert entry is not None
    assert {"pauses": 1, "name": "rate limit"} == orjson.loads(entry.value)


async def test_task_may_pause_more_often_than_it_may_be_delivered(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def waits(value: None, ctx: BlockingContext) -> int:
        if ctx.deliveries <= 15:
            raise Pause(0)
        return ctx.deliveries

    run_id = await dispatch(store, task)
    async with worker.running():
        assert 16 == output_of(await answer(store, run_id))


@pytest.mark.parametrize("delay_s", [-1, 3600.1, float("nan")])
def test_impossible_pause_is_refused(delay_s: float) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        Pause(delay_s)


async def test_task_delivered_too_often_fails_without_running(store: Store, worker: Worker, task: str) -> None:
    ran = []

    @worker.task(task)
    async def never() -> None:
        ran.append(1)

    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        for _ in range(10):
            await (await taken.get()).give_back()
    async with worker.running():
        event = await answer(store, run_id)
        await acknowledged(store, task)
    assert ("non_retriable", "delivered 10 times without an answer") == failure(event)
    assert not ran


async def test_checkpoint_is_there_for_the_next_attempt(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def resumable(value: None, ctx: Context) -> Any:
        found = await ctx.load_checkpoint()
        await ctx.checkpoint({"page": ctx.attempt})
        return [found, await ctx.load_checkpoint()]

    run_id = await dispatch(store, task, attempt=1)
    async with worker.running():
        first = await answer(store, run_id)
        await dispatch(store, task, attempt=2, run_id=run_id)
        second = (await reported(store, run_id, lambda e: isinstance(e, StepCompleted) and e.attempt_number == 2))[-1]
    assert isinstance(second, StepCompleted)
    assert [[None, {"page": 1}], [{"page": 1}, {"page": 2}]] == [output_of(first), output_of(second)]
    entry = await store.checkpoints.get(f"{run_id}.s")
    assert entry is not None
    assert b'{"page":2}' == entry.value


async def test_thread_has_the_same_context(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    def blocking(value: None, ctx: BlockingContext) -> Any:
        ctx.checkpoint([1, 2])
        ctx.send_signal(ctx.run_id, "self", {"a": 1})
        return {"after": ctx.load_checkpoint(), "signal": ctx.wait_signal("self", 5)}

    run_id = await dispatch(store, task, run_id=await start(store, chain(task)))
    async with worker.running():
        assert {"after": [1, 2], "signal": {"a": 1}} == output_of(await answer(store, run_id))


@pytest.mark.parametrize(
    ("stored", "seen"), [(b'{"ok":true}', {"ok": True}), (b"\xff raw", {"bytes": 5}), (b"", {"bytes": 0})]
)
async def test_signal_wakes_a_waiting_function(
    store: Store, worker: Worker, task: str, stored: bytes, seen: Any
) -> None:
    waits = asyncio.Event()

    @worker.task(task)
    async def until_signal(value: None, ctx: Context) -> Any:
        waits.set()
        found = await ctx.wait_signal("go")
        return {"bytes": len(found)} if isinstance(found, bytes) else found

    run_id = await dispatch(store, task)
    async with worker.running():
        await waits.wait()
        await store.signals.put(names.signal_key(run_id, "go"), stored)
        assert seen == output_of(await answer(store, run_id))


async def test_signals_sent_are_stored_and_written_to_the_history_of_their_run(
    store: Store, worker: Worker, task: str
) -> None:
    target = await start(store, chain(task))

    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(target, "one", {"n": 1})
        await ctx.send_signal(target, "two", b"\xff raw")

    run_id = await dispatch(store, task)
    async with worker.running():
        assert isinstance(await answer(store, run_id), StepCompleted)
    entries = await store.signals.get_many([names.signal_key(target, name) for name in ("one", "two")])
    assert [b'{"n":1}', b"\xff raw"] == [entry.value for entry in entries.values()]
    told = await reported(store, target, lambda e: isinstance(e, SignalReceived) and e.payload.name == "two")
    assert [("one", 7), ("two", 5)] == [(e.payload.name, e.payload.size) for e in told if isinstance(e, SignalReceived)]


@pytest.mark.parametrize(("run_id", "name"), [("not-a-run", "go"), ("0" * 32, "a b"), ("0" * 32, "")])
async def test_signal_to_nowhere_is_refused(store: Store, worker: Worker, task: str, run_id: str, name: str) -> None:
    @worker.task(task)
    async def sending(value: None, ctx: Context) -> None:
        await ctx.send_signal(run_id, name, 1)

    kind, text = failure((await played(store, worker, task))[-1])
    assert ("retriable", True) == (kind, text.startswith("Invalid: "))


@pytest.mark.parametrize("body", [b"{", b'{"run_id": "no run id", "step_id": "s", "task_id": "x"}'])
async def test_body_without_ids_becomes_a_dead_letter(store: Store, worker: Worker, task: str, body: bytes) -> None:
    worker.task(task)(lambda: None)
    run_id = new_run_id()
    await put_raw(store, task, run_id, body)
    async with worker.running():
        await acknowledged(store, task)
    (dead_letter,) = await store.reader.subject(names.DEAD, f"dead.{task}.{run_id}.*")
    assert body.decode() == orjson.loads(dead_letter.data)["input"]


async def test_worker_holds_no_more_than_max_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, gate, running = new_worker(max_tasks=3), asyncio.Event(), []

    @worker.task(task)
    async def held() -> None:
        running.append(1)
        await gate.wait()

    for _ in range(5):
        await dispatch(store, task)
    async with worker.running():
        await until_true(lambda: len(running) == 3)
        async with taking(store, task) as others:
            assert await asyncio.wait_for(others.get(), 5)  # what the worker does not hold is there for others
        assert 3 == len(running)
        assert 5 == await waiting(store, task)
        gate.set()


async def test_worker_holds_few_large_tasks(
    store: Store, new_worker: NewWorker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has asked for when it has enough, 8 MiB at the most, it takes. Then it asks for no more, of no type."""
    for transport in (bridge_intake, direct_intake):
        monkeypatch.setattr(transport, "TASKS_BYTES_MAX", 2 * MIB)
    worker, gate, running = new_worker(max_tasks=100), asyncio.Event(), []
    worker.task(f"{task}-other")(lambda: None)

    async def asks_no_more() -> bool:
        return await requests_waiting(store, f"{task}-other") == 0

    @worker.task(task)
    async def held(value: str) -> int:
        running.append(1)
        await gate.wait()
        return len(value)

    run_ids = [await dispatch(store, task, "x" * (MIB - 2)) for _ in range(24)]
    async with worker.running():
        await until_true(lambda: len(running) >= 2)
        await until(asks_no_more)
        assert 2 <= len(running) <= 2 + 9
        gate.set()
        for run_id in run_ids:
            assert MIB - 2 == output_of(await answer(store, run_id))


async def test_the_largest_task_is_carried_out(
    store: Store, worker: Worker, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for transport in (bridge_intake, direct_intake):
        monkeypatch.setattr(transport, "TASKS_BYTES_MAX", MIB)
    size = store.publisher.body_bytes_max - 1000  # with what stands around it
    worker.task(task)(len)
    run_ids = [await dispatch(store, task, "x" * size) for _ in range(3)]
    async with worker.running():
        for run_id in run_ids:
            assert size == output_of(await answer(store, run_id))


async def test_several_types_share_the_room(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, done = new_worker(max_tasks=4), Counter[str]()
    for number in range(3):

        @worker.task(f"{task}-{number}")
        async def work(value: str) -> None:
            done[value] += 1

    run_ids = [await dispatch(store, f"{task}-{number % 3}", str(number % 3)) for number in range(30)]
    async with worker.running():
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
    assert {"0": 10, "1": 10, "2": 10} == done


async def test_group_takes_only_its_own_tasks(store: Store, new_worker: NewWorker, task: str) -> None:
    worker = new_worker(group="gpu")
    worker.task(task)(lambda: None)
    other = await dispatch(store, task)
    own = await dispatch(store, task, group="gpu")
    async with worker.running():
        assert isinstance(await answer(store, own), StepCompleted)
    assert [] == await store.history.read(other)
    assert 1 == await waiting(store, task)


async def test_task_bound_to_a_worker_comes_to_it_alone(store: Store, new_worker: NewWorker, task: str) -> None:
    chosen, other, ran = new_worker(worker_id=f"w1-{task}"), new_worker(worker_id=f"w2-{task}"), []

    def register(worker: Worker) -> None:
        @worker.task(task)
        async def work(value: int) -> int:
            ran.append(worker.worker_id)
            return value

    register(chosen)
    register(other)
    run_ids = [new_run_id() for _ in range(5)]
    for run_id in run_ids:
        await store.tasks.send(
            run_id, "flow", DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, worker=chosen.worker_id)
        )
    async with frames(store, names.STICKY) as seen, other.running(), chosen.running():
        for run_id in run_ids:
            assert chosen.worker_id == (await answer(store, run_id)).worker_id
        await until_true(lambda: len(seen) == 5)
    assert ([b"+ACK"] * 5, [chosen.worker_id] * 5) == (seen, ran)


async def test_full_worker_takes_its_own_tasks_when_it_has_room(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, gate, begun = new_worker(max_tasks=1, worker_id=f"w-{task}"), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work(value: Any, ctx: Context) -> int:
        begun.set()
        if value == "long":
            await gate.wait()
        return ctx.deliveries

    async with worker.running():
        await dispatch(store, task, "long")
        await begun.wait()
        run_id = new_run_id()
        await store.tasks.send(
            run_id, "flow", DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, worker=worker.worker_id)
        )
        gate.set()
        assert isinstance(await answer(store, run_id), StepCompleted)


async def test_registration_describes_the_worker_and_ends_with_it(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker = new_worker(worker_id=f"w-{task}", max_tasks=4, metadata={"zone": "a"}, group="gpu")
    worker.task(task)(lambda: None)
    async with worker.running():
        entry = await store.workers.get(worker.worker_id)
        assert entry is not None
        found = orjson.loads(entry.value)
    assert found.pop("last_seen").endswith("Z")
    assert found.pop("version")
    assert found.pop("transport") in ("nats", "bridge")
    expected = {
        "worker_id": worker.worker_id,
        "task_types": [task],
        "language": "python",
        "max_tasks": 4,
        "metadata": {"zone": "a"},
    }
    assert {**expected, "worker_group": "gpu", "hostname": socket.gethostname(), "pid": os.getpid()} == found

    async def gone() -> bool:
        return await store.workers.get(worker.worker_id) is None

    await until(gone)


async def test_stop_lets_what_runs_finish(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, begun, gate = new_worker(grace_s=5), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work() -> None:
        begun.set()
        await gate.wait()

    run_id = await dispatch(store, task)
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    worker.stop()
    gate.set()
    await serving
    assert isinstance(await answer(store, run_id), StepCompleted)
    await acknowledged(store, task)


async def test_stop_gives_back_what_does_not_finish(store: Store, new_worker: NewWorker, task: str) -> None:
    worker, cancelled = new_worker(grace_s=0.05, max_tasks=2), []

    @worker.task(task)
    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    run_ids = [await dispatch(store, task) for _ in range(2)]
    async with frames(store) as seen:
        async with worker.running():
            await until_true(lambda: len(worker_running(worker)) == 2)
        await until_true(lambda: len(seen) >= 2)
        assert [b"-NAK", b"-NAK"] == seen
    assert [1, 1] == cancelled
    async with taking(store, task) as taken:
        again = await asyncio.wait_for(taken.get(), 5)
    assert again.subject[-32:] in run_ids
    assert 2 == again.deliveries


async def test_being_given_back_at_many_stops_is_not_held_against_a_task(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    run_id = await dispatch(store, task)
    for _ in range(13):
        leaving, begun = new_worker(grace_s=0), asyncio.Event()
        leaving.task(task)(stuck_after(begun))
        async with leaving.running():
            await begun.wait()
    last = new_worker()
    last.task(task)(lambda value, ctx: ctx.deliveries)
    async with last.running():
        assert 14 <= output_of(await answer(store, run_id))


async def test_worker_that_stops_under_load_leaves_nothing_behind(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    first, second, ran = new_worker(max_tasks=16), new_worker(max_tasks=16), Counter[str]()

    @first.task(task)
    async def some(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1
        if len(ran) == 50:
            first.stop()

    @second.task(task)
    async def wait(value: None, ctx: Context) -> None:
        ran[ctx.run_id] += 1

    run_ids = await asyncio.gather(*(dispatch(store, task) for _ in range(200)))
    await first.serve()
    by_first = len(ran)
    async with asyncio.timeout(15), second.running():  # sooner than the broker's ack wait brings anything back
        for run_id in run_ids:
            assert isinstance(await answer(store, run_id), StepCompleted)
        await acknowledged(store, task)
    assert by_first < 200
    assert Counter(run_ids) == ran


async def test_worker_can_run_again(store: Store, worker: Worker, task: str) -> None:
    worker.task(task)(lambda: None)
    for _ in range(2):
        run_id = await dispatch(store, task)
        async with worker.running():
            assert isinstance(await answer(store, run_id), StepCompleted)


async def test_bridge_refuses_another_token(store: Store, end: FrontEnd, task: str) -> None:
    worker = Worker(transport="bridge", url=end.url, bridge_token="wrong")
    worker.task(task)(lambda: None)
    with pytest.raises(Denied, match="bearer token"):
        async with worker.running():
            pass


async def test_bridge_that_is_not_there_is_unavailable(task: str) -> None:
    worker = Worker(transport="bridge", url="http://127.0.0.1:9", bridge_token=TOKEN)
    worker.task(task)(lambda: None)
    with pytest.raises(Unavailable, match=r"no answer|broke"):
        async with worker.running():
            pass


async def test_bridge_is_found_by_the_environment(
    store: Store, end: FrontEnd, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_URL", end.url)
    monkeypatch.setenv("SERVICE_BRIDGE_TOKEN", TOKEN)
    worker = Worker(transport="bridge")
    worker.task(task)(lambda: "here")
    run_id = await dispatch(store, task)
    async with worker.running():
        assert "here" == output_of(await answer(store, run_id))


def stuck_after(begun: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """A task function that says that it has begun, and never ends."""

    async def stuck() -> None:
        begun.set()
        await asyncio.Event().wait()

    return stuck


def worker_running(worker: Worker) -> Any:
    """What its intake runs now."""
    intake: Any = worker._intake
    return intake._running
