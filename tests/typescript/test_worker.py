"""The TypeScript worker against the whole service, over the bridge."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from msgspec import UNSET

from penstock.client.views import EventView, RunView
from tests.support.relay import relay
from tests.support.service import Service, free_port
from tests.support.waiting import until_found
from tests.typescript.conftest import BRIDGE_TOKEN, PAGES, Packed
from tests.typescript.lossy import losing_answers

GRACE_MS = "20000"


class Working:
    """A worker program. A thread keeps what it writes, so that it is never held up."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.warnings: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.warnings.append(json.loads(line) if line.startswith("{") else {"line": line})

    def line(self) -> list[Any]:
        """What it has printed next."""
        assert self.process.stdout is not None
        found: list[Any] = json.loads(self.process.stdout.readline())
        return found

    def rest(self) -> list[str]:
        """What it has printed until its end."""
        assert self.process.stdout is not None
        return self.process.stdout.read().splitlines()

    def warns(self, event: str) -> None:
        """Return once it has warned of that."""
        until_found(lambda: any(warning.get("event") == event for warning in self.warnings))

    def stop(self) -> int:
        """End it as an operator would, its polls included; returns the exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextmanager
def working(
    packed: Packed, service: Service, *arguments: str, program: str = "worker", url: str | None = None
) -> Iterator[Working]:
    where = url or service.url
    started = packed.start(program, where, *arguments, SERVICE_URL=where, SERVICE_BRIDGE_TOKEN=BRIDGE_TOKEN)
    worker = Working(started)
    try:
        yield worker
    finally:
        worker.kill()


@pytest.fixture
def worker(packed: Packed, shared: Service) -> Iterator[Working]:
    with working(packed, shared, "100", "1000", "the-worker") as started:
        yield started


def start(service: Service, name: str, value: object = None, **step: object) -> str:
    """Start a run of one step, of the task type `ts.<name>`."""
    return start_steps(service, name, [{"id": name, "task": f"ts.{name}", **step}], value)


def start_steps(service: Service, name: str, steps: list[dict[str, Any]], value: object) -> str:
    with service.client() as client:
        client.register(orjson.dumps({"name": name, "steps": steps}))
        return client.start(name, orjson.dumps(value)).run_id


def send(service: Service, run_id: str, name: str, payload: object) -> None:
    with service.client() as client:
        client.signal(run_id, name, orjson.dumps(payload))


def ended(service: Service, run_id: str) -> RunView:
    with service.client() as client:
        for _ in client.follow(run_id):
            pass
        return client.get_run(run_id)


def output(run: RunView, step: str) -> Any:
    assert "completed" == run.status, run.error
    return orjson.loads(bytes(run.steps[step].output))  # type: ignore[arg-type]


def test_steps_of_several_types_are_carried_out_in_one_worker(shared: Service, worker: Working) -> None:
    steps = [{"id": "add", "task": "ts.add"}, {"id": "twice", "task": "ts.twice", "depends_on": ["add"]}]

    run_ids = [start_steps(shared, "sums", steps, {"left": number, "right": 1}) for number in range(20)]
    runs = [ended(shared, run_id) for run_id in run_ids]

    assert [(number + 1) * 2 for number in range(20)] == [output(run, "twice") for run in runs]
    assert {"the-worker"} == {step.worker_id for run in runs for step in run.steps.values()}


def test_worker_is_registered(shared: Service, worker: Working) -> None:
    output(ended(shared, start(shared, "twice", 1)), "twice")
    with shared.client() as client:
        [found] = [one for one in client.workers() if one.worker_id == "the-worker"]

    assert ("typescript", "bridge", 100) == (found.language, found.transport, found.max_tasks)
    assert "ts.wait" in found.task_types


@pytest.mark.parametrize("how", ["by an error", "later"])
def test_an_attempt_that_failed_is_followed_by_another(shared: Service, worker: Working, how: str) -> None:
    retry = {"max_attempts": 2, "strategy": "fixed", "initial_delay": "10ms"}
    run = ended(shared, start(shared, "fail", how, retry=retry))

    assert "attempt 2" == output(run, "fail")
    assert 2 == run.steps["fail"].attempts


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("for good", "no such customer"),
        ("unwritable", "the output cannot be written as JSON"),
        ("too large", "the service refused the answer"),
    ],
)
def test_what_another_attempt_cannot_mend_fails_at_once(
    shared: Service, worker: Working, how: str, problem: str
) -> None:
    run = ended(shared, start(shared, "fail", how, retries=3))

    assert ("failed", 1) == (run.status, run.steps["fail"].attempts)
    assert problem in (run.steps["fail"].error or "")


def test_an_error_comes_with_its_type_and_its_stack(shared: Service, worker: Working) -> None:
    step = ended(shared, start(shared, "fail", "by an error", retries=0)).steps["fail"]

    assert "TypeError: out of order" == step.error
    assert "worker.js" in (step.traceback or "")


def test_a_loop_pauses_keeps_a_checkpoint_and_goes_on_until_it_has_an_output(shared: Service, worker: Working) -> None:
    run = ended(shared, start(shared, "draft", 0, type="agent_loop", config={"max_iterations": 10}))

    assert {"drafts": 3, "seen": {"seen": 1}} == output(run, "draft")
    assert 1 == run.steps["draft"].attempts


def test_what_a_task_says_can_be_read(shared: Service, worker: Working) -> None:
    words = [f"word {number}" for number in range(150)]
    run_id = start(shared, "talk", words)

    assert 150 == output(ended(shared, run_id), "talk")
    with shared.client() as client:
        assert words == [orjson.loads(bytes(chunk.data)) for chunk in client.chunks(run_id)]  # type: ignore[arg-type]
        lines = list(client.follow_logs(run_id))
    assert [("warning", "talked"), ("info", "of what JSON cannot say")] == [(line.level, line.text) for line in lines]
    assert {"words": 150} == orjson.loads(bytes(lines[0].fields))  # type: ignore[arg-type]


def test_no_more_tasks_at_one_time_than_the_worker_may_hold(packed: Packed, shared: Service) -> None:
    run_ids = {start(shared, "wait") for _ in range(5)}
    held: list[str] = []
    printed = []
    with working(packed, shared, "2") as worker:
        while len(printed) < 10:
            what, run_id, _ = worker.line()
            printed.append(what)
            if what == "ended":
                held.remove(run_id)
            else:
                held.append(run_id)
            assert len(held) <= 2
            if len(held) == 2 or (held and printed.count("begun") == 5):
                send(shared, held[0], "go", {"count": 1})
        runs = [ended(shared, run_id) for run_id in run_ids]

    assert [1] * 5 == [output(run, "wait") for run in runs]


def test_a_function_learns_at_once_that_its_run_was_cancelled(packed: Packed, shared: Service) -> None:
    run_id = start(shared, "wait")
    with working(packed, shared) as worker:
        assert ["begun", run_id, 1] == worker.line()
        with shared.client() as client:
            client.cancel(run_id, "changed my mind")
        assert ["cancelled", run_id, "TaskCancelled: changed my mind"] == worker.line()
        other = start(shared, "twice", 4)
        assert 8 == output(ended(shared, other), "twice")
        assert [] == [warning for warning in worker.warnings if warning["event"] != "disconnected"]


async def test_a_heartbeat_tells_it_when_the_message_was_lost(packed: Packed, shared: Service) -> None:
    async with relay(shared.http_address[1], "POST /v1/workers/connect") as way:
        with working(packed, shared, url=way.url) as worker:
            run_id = await asyncio.to_thread(start, shared, "wait")
            assert ["begun", run_id, 1] == await asyncio.to_thread(worker.line)
            way.lose()
            await asyncio.to_thread(worker.warns, "disconnected")
            with shared.client() as client:
                client.cancel(run_id, "changed my mind")
            what, cancelled, about = await asyncio.to_thread(worker.line)
            assert 0 == await asyncio.to_thread(worker.stop)

    assert ("cancelled", run_id) == (what, cancelled)
    assert about.startswith("TaskCancelled: ")


def test_on_sigterm_it_finishes_what_it_has_and_takes_no_more(packed: Packed, shared: Service) -> None:
    run_id = start(shared, "wait")
    with working(packed, shared, "100", GRACE_MS, "leaving") as worker:
        assert ["begun", run_id, 1] == worker.line()
        worker.process.send_signal(signal.SIGTERM)
        assert ["stopping", "", 0] == worker.line()
        with working(packed, shared, "100", GRACE_MS, "staying") as other:
            later = start(shared, "wait")
            assert ["begun", later, 1] == other.line()
            send(shared, later, "go", {"count": 2})
            assert 2 == output(ended(shared, later), "wait")
            send(shared, run_id, "go", {"count": 1})
            run = ended(shared, run_id)
        assert 0 == worker.process.wait(30)
        assert [f'["ended","{run_id}",1]'] == worker.rest()

    assert (1, "leaving") == (output(run, "wait"), run.steps["wait"].worker_id)
    with shared.client() as client:
        assert "leaving" not in {one.worker_id for one in client.workers()}


def test_what_it_cannot_finish_goes_to_another_worker_at_once_as_the_same_attempt(
    packed: Packed, shared: Service
) -> None:
    run_id = start(shared, "wait")
    with working(packed, shared, "100", "1", "leaving") as worker:
        assert ["begun", run_id, 1] == worker.line()
        worker.process.send_signal(signal.SIGTERM)
        assert ["stopping", "", 0] == worker.line()
        assert ["cancelled", run_id, "TaskCancelled: the worker stops"] == worker.line()
        assert 0 == worker.process.wait(30)
    with working(packed, shared, "100", GRACE_MS, "staying") as other:
        assert ["begun", run_id, 1] == other.line()
        send(shared, run_id, "go", {"count": 3})
        run = ended(shared, run_id)

    assert (3, "staying", 1) == (output(run, "wait"), run.steps["wait"].worker_id, run.steps["wait"].attempts)


def test_an_idle_worker_stops_at_once(packed: Packed, shared: Service) -> None:
    with working(packed, shared, "100", GRACE_MS, "idle") as worker:
        until_found(lambda: "idle" in workers_of(shared))
        worker.process.send_signal(signal.SIGINT)
        assert 0 == worker.process.wait(10)
        assert [] == worker.warnings


def workers_of(service: Service) -> set[str]:
    with service.client() as client:
        return {one.worker_id for one in client.workers()}


def killed_and_started(service: Service) -> None:
    service.kill_all()
    service.start()


def front_ends_killed(service: Service) -> None:
    former = set(service.http_worker_pids())
    for pid in former:
        os.kill(pid, signal.SIGKILL)
    until_found(lambda: set(service.http_worker_pids()) - former)
    service.await_ready()


@pytest.mark.parametrize("away", [killed_and_started, front_ends_killed])
def test_it_keeps_its_task_and_connects_again_when_the_service_was_away(
    packed: Packed, shared: Service, away: Callable[[Service], None]
) -> None:
    run_id = start(shared, "wait")
    with working(packed, shared, "100", GRACE_MS, "loyal") as worker:
        assert ["begun", run_id, 1] == worker.line()
        away(shared)
        worker.warns("disconnected")
        send(shared, run_id, "go", {"count": 5})
        assert ["ended", run_id, 5] == worker.line()
        run = ended(shared, run_id)
        assert 6 == output(ended(shared, start(shared, "twice", 3)), "twice")
        until_found(lambda: "loyal" in workers_of(shared))

    assert (5, 1, "loyal") == (output(run, "wait"), run.steps["wait"].attempts, run.steps["wait"].worker_id)


def test_it_waits_for_a_service_that_is_not_there_yet(packed: Packed, shared: Service) -> None:
    run_id = start(shared, "twice", 21)
    shared.kill_all()
    with working(packed, shared) as worker:
        worker.warns("disconnected")
        shared.start()
        assert 42 == output(ended(shared, run_id), "twice")


@pytest.mark.parametrize("losses", [0, 2])
async def test_an_answer_whose_receipt_was_lost_is_sent_again_and_counts_once(
    packed: Packed, shared: Service, losses: int
) -> None:
    async with losing_answers(shared, losses, b"/resolve ") as (url, requests):
        with working(packed, shared, url=url) as worker:
            run_id = await asyncio.to_thread(start, shared, "twice", 2)
            run = await asyncio.to_thread(ended, shared, run_id)
            await asyncio.to_thread(until_found, lambda: len(requests) > losses)
            assert 0 == await asyncio.to_thread(worker.stop)
    with shared.client() as client:
        found = client.events(run_id)
    types = [kind for event in found for kind in kinds_of(event)]

    assert 4 == output(run, "twice")
    assert ["workflow.started", "step.started", "step.completed", "workflow.completed"] == types
    assert 1 == len({body for _, body in requests})


def test_a_worker_with_a_wrong_token_ends_and_says_why(packed: Packed, shared: Service) -> None:
    process = packed.start("worker", shared.url, SERVICE_BRIDGE_TOKEN="wrong")
    _, err = process.communicate(timeout=30)

    assert 1 == process.returncode
    assert "UnauthorizedError: a valid bearer token is needed" in err


def test_what_is_wrong_with_a_worker_is_named(packed: Packed) -> None:
    assert [
        "RangeError: maxTasks is 0: it must be a whole number from 1 to 1000",
        "RangeError: maxTasks is 1.5: it must be a whole number from 1 to 1000",
        'TypeError: "localhost" is no http:// or https:// address',
        'TypeError: task "a" has a function already',
        "TypeError: the worker has no task function",
    ] == packed.run("wrong", f"http://127.0.0.1:{free_port()}").splitlines()


def test_the_worker_of_the_readme_serves_its_client(packed: Packed, shared: Service) -> None:
    shown = PAGES["readme"].read_text().partition("```text\n")[2].partition("```")[0]

    with working(packed, shared, program="readme_1"):
        printed = packed.run("readme_0", SERVICE_URL=shared.url)
    assert shown == printed.replace("step.started\n", "")  # a step that takes more than 25 ms has it


def test_the_worker_of_the_page_about_workers_greets(packed: Packed, shared: Service) -> None:
    with working(packed, shared, program="workers_0"):
        run_id = start_steps(shared, "greet", [{"id": "hello", "task": "hello"}], "Grace")

        assert {"greeting": "Hello, Grace!"} == output(ended(shared, run_id), "hello")


def kinds_of(event: EventView) -> list[str]:
    """The type of the event; before it that of the start, if it is an answer that stands for both."""
    return [event.type] if event.started_at is UNSET else ["step.started", event.type]
