"""A whole service of which a test has one process die at a point of its choice, and what its runs came to."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx2
from msgspec import Raw

from penstock.actors.runs.loading import advance_safely, load, records
from penstock.broker.names import owner_state
from penstock.broker.store import Store, open_store
from penstock.config.process.crash_points import VARIABLE, Point
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import STEP_ENDED, Run, StepState, from_snapshot, to_snapshot
from penstock.http.messages.responses import INDEX_LAG
from tests.http.bridge import TOKEN, client
from tests.support.service import Service
from tests.support.waiting import until, until_true

SECRET = "it is a secret"
WORKER = [sys.executable, "-m", "tests.support.crash_worker"]
INSTANT_RESTARTS = [sys.executable, str(Path(__file__).with_name("instant_restarts.py"))]
NO_ANSWER = 503
JOIN_S = 0.1


class Result(NamedTuple):
    """What one execution of a step came to, in the order of the log."""

    step_id: str
    attempt: int
    iteration: int
    status: str


class Step(NamedTuple):
    status: str
    attempts: int
    iteration: int
    output: bytes
    error: str | None


class RunOutcome(NamedTuple):
    status: str
    input: bytes
    error: str | None
    steps: dict[str, Step]
    results: list[Result]


class Outcome(NamedTuple):
    """Without ids and times: the same for every life of a scenario. `facts` are its own."""

    runs: list[RunOutcome]
    letters: list[tuple[str, str | None, int | None, str]]
    facts: object


class Place:
    """A service and a worker, with a directory of tickets to die. Owned by a test module, by way of `place`."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._tickets = directory / "points"
        self._tickets.mkdir()
        environ = {VARIABLE: str(self._tickets)}
        more = {"shards": 2, "http_workers": 1, "bridge_token": TOKEN, "webhook_secret": SECRET, **settings}
        self.service = Service(directory, environ, INSTANT_RESTARTS, **more)
        self._environ = {**self.service.environ, **environ}
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._working = Thread(target=self._work)

    def start_worker(self) -> None:
        """A worker, and another one whenever it dies."""
        self._working.start()

    def stop_worker(self) -> None:
        self._stopping = True
        while self._working.is_alive():
            if self._worker is not None:
                self._worker.kill()
            self._working.join(JOIN_S)

    def _work(self) -> None:
        while not self._stopping:
            with self.service.log.open("ab") as log:
                self._worker = subprocess.Popen(WORKER, env=self._environ, stdout=log, stderr=log)
            self._worker.wait()

    def arm(self, point: Point, passage: int) -> None:
        """Have the process die that passes the point for the n-th time from now on."""
        for number in range(1, passage + 1):
            (self._tickets / f"{point}.{number}").touch()

    async def died(self, point: Point) -> None:
        """Return when the process is gone that passed the point."""
        await until_true(lambda: self._is_gone(point))

    def forget(self, point: Point) -> None:
        for ticket in self._tickets.glob(f"{point}.*"):
            ticket.unlink()

    def _is_gone(self, point: Point) -> bool:
        died = self._tickets / f"{point}.died"
        pid = died.read_text() if died.exists() else ""
        return bool(pid) and not Path(f"/proc/{pid}").exists()


class World(NamedTuple):
    """What a scenario has at hand, as a client of the service and as one who looks into its store."""

    place: Place
    store: Store
    http: httpx2.AsyncClient

    async def ask(self, method: str, path: str, *also: int, **options: Any) -> httpx2.Response:
        """The answer to a request, which is repeated until there is one. It must be a success, or one of `also`."""

        async def answered() -> httpx2.Response | None:
            return await self.ask_once(method, path, **options)

        answer = await until(answered)
        assert answer is not None
        assert answer.is_success or answer.status_code in also, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    async def ask_once(self, method: str, path: str, **options: Any) -> httpx2.Response | None:
        """None: the connection broke, or the service said that it does not know."""
        try:
            answer = await self.http.request(method, path, **options)
        except httpx2.TransportError:
            return None
        return None if answer.status_code == NO_ANSWER else answer

    async def outcome(self, workflow: str, facts: object) -> Outcome:
        """What became of all runs of a workflow, and of what could start none for the trigger of its name."""
        listed = await until(lambda: self._listed(workflow))
        assert listed is not None
        run_ids = [run["run_id"] for run in listed.json()]
        assert len(run_ids) == len(set(run_ids))
        runs = [await self._of_run(run_id) for run_id in run_ids]
        page = await self.store.dead_letters.page(limit=1000)
        letters = [
            dead_letter
            for dead_letter in page.dead_letters
            if dead_letter.run_id in run_ids or dead_letter.trigger == workflow
        ]
        return Outcome(
            sorted(runs, key=lambda run: run.input),
            sorted((one.kind, one.step_id, one.attempts, one.error) for one in letters),
            facts,
        )

    async def _listed(self, workflow: str) -> httpx2.Response | None:
        """The answer with the runs of a workflow; None while the index is behind the log, as after its death."""
        answer = await self.ask("GET", "/runs", params={"workflow": workflow})
        return answer if answer.headers[INDEX_LAG].startswith("0;") else None

    async def _of_run(self, run_id: str) -> RunOutcome:
        """The fold of its whole log, which its snapshot must be, too."""
        run, results = await self._folded(run_id)
        repeated = [result for result, times in Counter(results).items() if times > 1]
        assert not repeated, f"run {run_id} counts some results more than once: {repeated}"
        if run.ended:
            assert to_snapshot(run) == to_snapshot(await self._snapshot(run_id))
        steps = {step_id: _step(step) for step_id, step in run.steps.items()}
        return RunOutcome(run.status, bytes(run.input), run.error, steps, results)

    async def _folded(self, run_id: str) -> tuple[Run, list[Result]]:
        run: Run | None = None
        results: list[Result] = []
        found = records(await self.store.history.read(run_id))
        for record in found:
            if run is None:
                payload = record.event.payload
                workflow = await self.store.definitions.load(payload.workflow, payload.digest)  # type: ignore[union-attr]
            before = run.steps if run else {}
            run, _ = advance_safely(workflow, run, record)
            assert run is not None
            results += [
                Result(step_id, step.attempts, step.iteration, step.status)
                for step_id, step in run.steps.items()
                if _has_result(before.get(step_id, StepState.WAITING), step)
            ]
        assert run is not None
        return run, results

    async def _snapshot(self, run_id: str) -> Run:
        """The state that the run's shard has written last: with the end, or as a snapshot."""

        async def find() -> Run | None:
            last = await self.store.history.last(run_id)
            if last is not None and owner_state(last.headers) is not None:
                return (await load(self.store, run_id)).run
            entry = await self.store.runs.get(run_id)
            run = None if entry is None else from_snapshot(entry.value)
            return run if run is not None and run.ended else None

        found = await until(find)
        assert found is not None
        return found


@contextmanager
def place(directory: Path, **settings: object) -> Iterator[Place]:
    """A service with these settings that is ready, for the time of the block; it ends with its worker."""
    found = Place(directory, **settings)
    with found.service:
        try:
            yield found
        finally:
            found.stop_worker()


@asynccontextmanager
async def world(found: Place) -> AsyncIterator[World]:
    """Connections to the place for the time of the block."""
    async with (
        open_store(BrokerSettings(url=found.service.broker_url), "test") as store,
        client(found.service.url) as http,
    ):
        yield World(found, store, http)


def _has_result(before: StepState, after: StepState) -> bool:
    """Whether an event ended an execution of the step: for good, or another attempt or iteration follows."""
    ended = after.status in STEP_ENDED and before.status not in STEP_ENDED
    return ended or (before.attempts, before.iteration) != (after.attempts, after.iteration)


def _step(step: StepState) -> Step:
    output = bytes(step.output) if isinstance(step.output, Raw) else b""
    return Step(step.status, step.attempts, step.iteration, output, step.error)
