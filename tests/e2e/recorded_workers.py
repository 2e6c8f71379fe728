"""What a worker of the SDK exchanges with the service, recorded: over the bridge its requests with the answers, over
the broker the messages of both sides.

    python -m tests.e2e.recorded_workers     writes what is missing in recordings/<version in setup.cfg>, and seals it

A file that is there is never written again: test_older_workers.py has today's service take what older workers sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx2
import msgspec
import orjson
from msgspec import Struct

from penstock.broker.store import Store, open_store
from penstock.client import AsyncClient
from penstock.config.settings import BrokerSettings
from penstock.worker import Context, Continue, NonRetriable, Pause, RetryAfter, Worker
from tests.properties.recorded import SEAL, current, seal
from tests.support.service import Service
from tests.support.waiting import until

FOLDER = Path(__file__).parent / "recordings"
RUN, WORKER, TOKEN = "RUN", "older-worker", "older"
TASK = "older.step"
PLACE = re.compile(r'(File \\+")[^"\\]*(?=\\+")')
STEPS = ("says", "fails_first", "pauses", "loops", "signals", "gives_up")
DEFINITION = {
    "name": "older",
    "steps": [
        {"id": "says", "task": TASK, "metadata": {"kind": "first"}},
        {"id": "fails_first", "task": TASK, "depends_on": ["says"], "retry": {"max_attempts": 2}},
        {"id": "pauses", "task": TASK, "depends_on": ["fails_first"]},
        {"id": "loops", "task": TASK, "depends_on": ["pauses"], "type": "agent_loop", "config": {"max_iterations": 3}},
        {"id": "signals", "task": TASK, "depends_on": ["loops"]},
        {"id": "gives_up", "task": TASK, "depends_on": ["signals"]},
    ],
}
INPUT = b'{"name":"Gr\\u00e4fin"}'
TAPPED = (
    "history.*",
    "task.>",
    "$JS.ACK.TASK_QUEUES.>",
    "$JS.API.CONSUMER.*.TASK_QUEUES.>",
    "$KV.checkpoints.>",
    "$KV.signals.>",
    "$KV.workers.>",
    "log.>",
    "stream.>",
    "progress.>",
)
OF_THE_WORKER = ("step.", "signal.")


class Exchange(Struct, frozen=True):
    """One request over the bridge, and its answer; `RUN` stands for the run's id. An empty body is null."""

    method: str
    path: str
    status: int
    body: Any = None
    answer: Any = None


class Sent(Struct, frozen=True):
    """One message over the broker: a `task` that the engine queued, an `ack` of the worker, anything else `published`
    by it. `body` is text."""

    kind: Literal["task", "ack", "published"]
    subject: str
    body: str
    headers: dict[str, str] = {}


class Recording(Struct, frozen=True):
    """A run as the worker took part in it, and how the API showed it at its end."""

    definition: dict[str, Any]
    input: Any
    exchanges: list[Exchange] = []
    messages: list[Sent] = []
    ended: dict[str, Any] = {}


async def carry_out(_: Any, ctx: Context) -> Any:
    """The function of every step: what it does depends on the step's id."""
    match ctx.step_id:
        case "says":
            ctx.log.info("begun", part="one")
            ctx.stream({"delta": "He"})
            ctx.progress(1, 2, "half")
            await ctx.checkpoint({"at": 1})
            return {"kept": await ctx.load_checkpoint(), "metadata": dict(ctx.metadata)}
        case "fails_first" if ctx.attempt == 1:
            raise RetryAfter(0.05, "not yet")
        case "pauses" if ctx.deliveries == 1:
            raise Pause(0.05, checkpoint={"job": 7}, name="waits for the printer")
        case "pauses":
            return await ctx.load_checkpoint()
        case "loops" if ctx.iteration == 0:
            return Continue({"round": 1})
        case "signals":
            await ctx.send_signal(ctx.run_id, "go", {"ready": True})
            return await ctx.wait_signal("go", 10)
        case "gives_up":
            raise NonRetriable("it cannot be done")
    return ctx.step_id


def of_run(text: str, run_id: str) -> str:
    """With `RUN` for the id of the run, and no path of this machine."""
    return PLACE.sub(r"\1/app/worker.py", text.replace(run_id, RUN))


def _placed(value: Any, run_id: str) -> Any:
    return orjson.loads(of_run(orjson.dumps(value).decode(), run_id))


class Requests:
    """What this process sends over the bridge, while it is on. Polls without a task are left out."""

    def __init__(self) -> None:
        self.found: list[Exchange] = []
        self._request, self._stream = httpx2.AsyncClient.request, httpx2.AsyncClient.stream

    def on(self) -> None:
        requests = self

        async def request(self: Any, method: str, url: Any, **more: Any) -> httpx2.Response:
            answer = await requests._request(self, method, url, **more)
            requests._note(method, str(url), more.get("content") or b"", answer.status_code, answer.content)
            return answer

        def stream(self: Any, method: str, url: Any, **more: Any) -> Any:
            requests._note(method, str(url), more.get("content") or b"", 200, b"")
            return requests._stream(self, method, url, **more)

        httpx2.AsyncClient.request, httpx2.AsyncClient.stream = request, stream

    def off(self) -> None:
        httpx2.AsyncClient.request, httpx2.AsyncClient.stream = self._request, self._stream

    def _note(self, method: str, path: str, content: bytes, status: int, answered: bytes) -> None:
        if not path.startswith("/v1/"):
            return
        body, answer = (orjson.loads(text) if text else None for text in (content, answered))
        if path == "/v1/tasks/exchange" and not answer.get("tasks"):
            body.pop("poll", None)  # it ended without a task, however long it took
        empty = path == "/v1/tasks/poll" and not answer
        if not empty and not (path == "/v1/tasks/exchange" and not body.get("resolve") and "poll" not in body):
            self.found.append(Exchange(method, path, status, body, answer))


@asynccontextmanager
async def tapped(store: Store) -> AsyncIterator[list[Sent]]:
    """Every message that the broker passes on meanwhile, of those that a worker and its tasks consist of."""
    seen: list[Sent] = []

    async def see(message: Any) -> None:
        subject, body = message.subject, message.data.decode()
        headers = {name: value for name, value in (message.headers or {}).items() if name.startswith(("Nats-", "KV-"))}
        if subject.startswith("task."):
            seen.append(Sent("task", subject, body))
        elif subject.startswith("$JS.ACK."):
            seen.append(Sent("ack", "", body))
        elif _is_of_the_worker(subject, body):
            seen.append(Sent("published", subject, body, headers))

    subscriptions = [await store.broker.subscribe(subject, see) for subject in TAPPED]
    await store.broker.flush()
    yield seen
    for subscription in subscriptions:
        await subscription.unsubscribe()


def _is_of_the_worker(subject: str, body: str) -> bool:
    if subject.startswith("history."):
        return str(orjson.loads(body)["type"]).startswith(OF_THE_WORKER)
    return ".CONSUMER." not in subject or ".CREATE." in subject


def at_end(shown: Any) -> dict[str, Any]:
    """Of a run's snapshot: what a worker's answers have brought about."""
    steps = {
        name: {key: row[key] for key in ("status", "output", "attempt", "error") if key in row}
        for name, row in shown["steps"].items()
    }
    return {"status": shown["status"], "error": shown.get("error"), "steps": steps}


async def ended(client: AsyncClient, url: str, run_id: str) -> dict[str, Any]:
    async def find() -> bool:
        return (await client.get_run(run_id)).ended

    await until(find)
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        return at_end((await http.get(f"/runs/{run_id}")).json())


async def record(service: Service, transport: str) -> Recording:
    requests = Requests()
    broker = BrokerSettings(url=service.broker_url)
    async with AsyncClient(service.url) as client, open_store(broker, "recording") as store, tapped(store) as seen:
        await client.register(orjson.dumps(DEFINITION))
        if transport == "bridge":
            requests.on()
            worker = Worker(transport="bridge", url=service.url, bridge_token=TOKEN, worker_id=WORKER, max_tasks=1)
        else:
            worker = Worker(broker_url=service.broker_url, worker_id=WORKER, max_tasks=1)
        worker.task(TASK)(carry_out)
        try:
            async with worker.running():
                run_id = (await client.start("older", INPUT)).run_id
                shown = await ended(client, service.url, run_id)
        finally:
            requests.off()
    exchanges = [_placed(msgspec.to_builtins(one), run_id) for one in requests.found]
    messages = [_placed(msgspec.to_builtins(one), run_id) for one in seen] if transport == "broker" else []
    return msgspec.convert(
        {
            "definition": DEFINITION,
            "input": orjson.loads(INPUT),
            "exchanges": exchanges,
            "messages": messages,
            "ended": _placed(shown, run_id),
        },
        Recording,
    )


def written(recording: Recording) -> bytes:
    return orjson.dumps(msgspec.to_builtins(recording), option=orjson.OPT_INDENT_2) + b"\n"


async def main() -> None:
    folder = FOLDER / current()
    folder.mkdir(parents=True, exist_ok=True)
    for transport in ("bridge", "broker"):
        path = folder / f"{transport}.json"
        if not path.exists():
            with TemporaryDirectory() as directory:
                service = Service(Path(directory), {"SERVICE_BRIDGE_TOKEN": TOKEN}, shards=1, http_workers=1)
                with service:
                    path.write_bytes(written(await record(service, transport)))
            print(path.name)
    if not (folder / SEAL).exists():
        (folder / SEAL).write_text(seal(folder) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
