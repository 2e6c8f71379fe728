"""No request, however mangled, is answered with an internal error, and none does harm: 10,000 of them, drawn by fixed
seeds.

Every request is made of a valid one of the API's table, and goes to the application over a real broker as a server
hands it on. A failure names the seed and shows the request.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import pytest
from falcon.testing import ASGIConductor
from msgspec import Raw, Struct

from penstock.broker import record_keys
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.limits.configs import LimitOverride
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from penstock.engine.run.event_payloads import Failure, RunFailure, StepFacts
from penstock.engine.run.events import StepCompleted, StepFailed, StepStarted, WorkflowFailed
from penstock.engine.validation import parse
from penstock.http.app import create_app
from penstock.http.openapi.document import path_parameters, refused
from penstock.http.openapi.operations.history import EXPORTED
from penstock.http.openapi.operations.operation import Access, Operation
from penstock.http.openapi.operations.triggers import NIGHTLY
from penstock.http.openapi.operations.workflows import GREET
from penstock.http.openapi.table import OPERATIONS
from tests.http.conftest import ONE_STEP, TYPED
from tests.support.conductor import Conductor
from tests.support.mutation import Request, mutate, quote
from tests.worker.task_queue import dispatch

SEEDS = range(10)
REQUESTS = 1_000  # of one seed
AT_ONCE = 16
LEAVES_S = 0.05  # after which a client goes away
ANSWER_S_MAX = 30.0
LETTERS = 40
TASKS = 20
SPARE = 20
SCOPES = tuple(f"scope-{number}" for number in range(20))
SECRET = "shared"
TOKENS = {Access.API: "s3cret", Access.BRIDGE: "br1dge"}
MAPPED = {"name": "mapped", "steps": [{"id": "a", "type": "map", "task": "work"}]}
BROKEN = {"name": "broken", "steps": [{"id": "a", "task": "work"}]}
FLOW = {"name": "flow", "steps": [{"id": "s", "task": "fuzzed"}]}

RETRY = {
    "max_attempts": 2,
    "strategy": "exponential",
    "initial_delay": "1s",
    "max_delay": 60_000_000_000,
    "multiplier": 1.5,
}
LARGE = {
    "name": "large",
    "version": "2",
    "description": "all that a definition may hold",
    "timeout": "2h",
    "default_retry": RETRY,
    "sticky": "soft",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "steps": [
        {"id": "a", "task": "t", "retry": RETRY, "metadata": {"k": "v"}, "worker_group": "g"},
        {
            "id": "b",
            "task": "t",
            "type": "agent_loop",
            "depends_on": ["a"],
            "config": {"max_iterations": 3, "loop_delay": "1s"},
        },
        {
            "id": "c",
            "type": "approval",
            "depends_on": ["a"],
            "config": {"timeout": "1h", "subject": "people.ask", "metadata": {"k": "v"}},
        },
        {
            "id": "d",
            "task": "t",
            "depends_on": ["b", "c"],
            "skip_if": {"step_id": "b", "field": "x.y", "op": "<", "value": 3},
        },
    ],
}
LATER = {"workflow": "typed", "input": {"n": 1}, "run_at": "2100-01-01T00:00:00Z"}
FLOW_LATER = {"workflow": "flow", "run_at": "2100-01-01T00:00:00Z"}
SOURCES = (
    {"cron": {"expression": "0 3 * * *", "timezone": "Europe/Berlin"}},
    {"subject": {"subject": "orders.*.new"}},
    {"event": {"subject": "event.webhook.push", "field": "a.b", "value": {"c": [1]}}},
    {"webhook": {"secret": "whsec_c2hhcmVk"}},
)

# Further valid bodies, beside the examples of the table.
BODIES: Mapping[str, Sequence[object]] = {
    "registerWorkflow": (LARGE, LARGE, LARGE),
    "startRun": (LATER, {"workflow": "one"}, {"workflow": "one", "version": "1"}),
    "cancelRuns": (
        {"workflow_id": "one", "status": "all"},
        {"workflow_id": "typed", "after": "2026-01-01T00:00:00+01:00"},
    ),
    "retryRuns": ({"workflow_id": "one", "mode": "rerun"},),
    "createTrigger": [{**NIGHTLY, "cron": None, **source} for source in SOURCES],
    "putTrigger": [{"workflow": "greet", "enabled": False, "input": {}, **source} for source in SOURCES],
    "connectWorker": (
        {
            "worker_id": "w2",
            "task_types": ["t"],
            "language": "x",
            "metadata": {"k": "v"},
            "hostname": "h",
            "pid": 1,
            "version": "1",
        },
    ),
    "pollTasks": (
        {"task_types": ["t", "fuzzed"], "max_tasks": 2, "timeout_ms": 10, "worker_id": "w1", "worker_group": "g"},
    ),
    "exchangeTasks": (
        {
            "resolve": [
                {"task_id": f"{'0' * 32}.s", "action": "heartbeat"},
                {"task_id": "x", "action": "fail", "error": "no"},
            ],
            "poll": {"task_types": ["t"], "max_tasks": 1, "timeout_ms": 10, "worker_group": "g"},
        },
    ),
    "resolveTask": (
        {"action": "fail", "error": "no", "failure_type": "retry_after", "retry_after_ms": 5},
        {"action": "pause", "duration_ms": 10, "checkpoint": {"at": 1}, "name": "lunch"},
        {"action": "checkpoint", "data": {"at": 2}},
        {"action": "continue", "output": [1]},
        {"action": "heartbeat"},
    ),
}


AIMED = {"step": "a"}  # which all runs have that have begun
OF_NAME = {operation.name: operation for operation in OPERATIONS}
# of triggers, one of which is deleted by others
TRIGGERED = ("fireTrigger", "testTrigger", "getTrigger")
# of which engines have to be there for success
FOR_OTHERS = ("getReady", "decide", "decideAsOperator", "replayDeadLetter", "retryRun")


class Answer(Struct):
    status: int
    media: str
    body: bytes


class Reach(Struct):
    """What requests may name."""

    run_ids: list[str]
    scheduled: list[str]
    answered: list[str]
    task_ids: list[str]
    letters: list[str]
    spare: list[str]
    mapped: list[str]
    open: list[str]
    ended: list[str]
    failed: list[str]


@pytest.fixture
async def app(broker_settings: BrokerSettings, store: Store, index: None) -> AsyncIterator[ASGIConductor]:
    """The application with every secret set."""
    for document in (GREET, ONE_STEP, TYPED, FLOW, MAPPED, BROKEN):
        await store.definitions.register(parse(document))
    http = HttpSettings(api_token=TOKENS[Access.API], bridge_token=TOKENS[Access.BRIDGE], webhook_secret=SECRET)
    async with Conductor(create_app(Settings(broker=broker_settings, http=http))) as conductor:
        yield conductor


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_mangled_request_meets_an_internal_error(app: ASGIConductor, store: Store, seed: int) -> None:
    random, reach = Random(seed), await _reach(app, store)
    seen, wrong, gate = Counter[tuple[str, int]](), list[str](), asyncio.Semaphore(AT_ONCE)

    async def send(request: Request) -> None:
        async with gate:
            answer = await _answer(app, request)
        seen[request.operation, answer.status] += 1
        if not _allowed(request, answer):
            wrong.append(f"{answer} to {request}")

    requests = _requests(random, reach)
    for several in (
        islice(requests, len(OPERATIONS)),
        requests,
    ):  # each as it should be, then mangled ones
        async with asyncio.TaskGroup() as group:
            for request in several:
                group.create_task(send(request))
    assert [] == wrong, f"seed {seed}: " + "\n".join(wrong)
    _check_spread(seen)
    await _check_health(app)


def _requests(random: Random, reach: Reach) -> Iterator[Request]:
    for number in range(REQUESTS):
        first = number < len(OPERATIONS)  # the first of each is as it should be, with nothing that it can do without
        request = _valid(random, OPERATIONS[number % len(OPERATIONS)], reach, 0.0 if first else 0.5)
        if not first:
            mutate(random, request)
        yield request


def _valid(random: Random, operation: Operation, reach: Reach, share: float) -> Request:
    """A request that nothing is wrong with, with this share of the optional parameters."""
    runs = {
        "scheduled": reach.scheduled,
        "output": reach.answered,
        "input": reach.answered,
        "checkpoint": reach.open,
        "items": reach.mapped,
        "pause": reach.open,
        "resume": reach.open,
        "rerun": reach.ended,
        "retry": reach.failed if operation.name == "retryStep" else reach.run_ids,
        "skip": reach.failed,
    }
    known = {
        "run_id": random.choice(runs.get(operation.path.rpartition("/")[2], reach.run_ids)),
        **(
            {"step_id": "a"}
            if operation.path.endswith(("/output", "/input", "/checkpoint", "/items", "/skip"))
            or operation.name == "retryStep"
            else {}
        ),
        "other": random.choice(reach.run_ids),
        "seq": random.choice(reach.letters),
        "scope": random.choice(SCOPES),
        "task_id": random.choice(reach.task_ids),
        **({"name": random.choice(reach.spare)} if operation.name == "deleteWorkflow" else {}),
        **({"name": random.choice(("nightly", "push"))} if operation.name in TRIGGERED else {}),
    }
    path = operation.path
    for parameter in path_parameters(operation):
        path = path.replace(f"{{{parameter.name}}}", known.get(parameter.name, parameter.example))
    chosen = [one for one in operation.parameters if one.required or random.random() < share]
    query = [(one.name.encode(), quote(AIMED.get(one.name, one.example))) for one in chosen if one.place == "query"]
    headers = [(one.name.lower().encode(), one.example.encode()) for one in chosen if one.place == "header"]
    if operation.access in TOKENS:
        headers.append((b"authorization", f"Bearer {TOKENS[operation.access]}".encode()))
    if operation.access is Access.APPROVAL:
        query.append((b"token", b"0" * 64))
    bodies = [operation.body.example, *BODIES.get(operation.name, ())] if operation.body else [None]
    segments = path.encode().split(b"/")[1:]
    body = deepcopy(random.choice(bodies))
    if operation.name == "createKey":  # each name once
        body["name"] = f"ada-{random.getrandbits(64):x}"
    if operation.name == "importRun":  # each run once
        body = orjson.loads(orjson.dumps(body).replace(EXPORTED["run_id"].encode(), b"%032x" % random.getrandbits(128)))
    return Request(operation.name, operation.method.upper(), segments, query, headers, body)


async def _reach(app: ASGIConductor, store: Store) -> Reach:
    """Runs, scheduled ones, some with an output, ones that are open and have a checkpoint and ones that have ended,
    tasks that are handed out, dead letters, and workflows that nothing needs."""
    bearer = {"Authorization": f"Bearer {TOKENS[Access.API]}"}
    inputs = {"workflow_id": "one", "inputs": list(range(20))}
    run_ids = (await app.simulate_post("/runs/bulk", json=inputs, headers=bearer)).json["run_ids"]
    scheduled = [(await app.simulate_post("/runs", json=FLOW_LATER, headers=bearer)).json["run_id"] for _ in range(15)]
    answered = (await app.simulate_post("/runs/bulk", json=inputs, headers=bearer)).json["run_ids"]
    for run_id in answered:
        await store.history.append(StepCompleted(run_id=run_id, step_id="a", payload=Raw(b"[1]")))
    mapped = (await app.simulate_post("/runs", json={"workflow": "mapped"}, headers=bearer)).json["run_id"]
    begun = StepStarted(run_id=mapped, step_id="a", attempt_number=1, payload=StepFacts(items=3))
    await store.history.append(begun)
    inputs = {"workflow_id": "mapped", "inputs": list(range(20))}
    kept = (await app.simulate_post("/runs/bulk", json=inputs, headers=bearer)).json["run_ids"]
    for run_id in kept[5:]:
        await store.checkpoints.put(record_keys.step_key(run_id, "a"), b'{"page": 7}')
    for run_id in kept[:5]:
        await app.simulate_post(f"/runs/{run_id}/cancel", headers=bearer)
    await app.simulate_put("/triggers/push", json={"workflow": "one", "webhook": {}}, headers=bearer)
    needing = {"workflow": "greet", "cron": {"expression": "0 0 1 1 *"}}  # so that no request deletes it
    await app.simulate_put("/triggers/needing", json=needing, headers=bearer)
    for _ in range(TASKS):
        await dispatch(store, "fuzzed")
    for number in range(LETTERS):
        body = b"\xff" if number % 2 else b"{}"
        await store.dead_letters.store_trigger_event("push", "event.x", body, new_run_id(), "no\nsuch thing")
    letters = (await app.simulate_get("/dead-letters", headers=bearer)).json
    await store.api_keys.change(lambda _: [])  # those of other seeds
    await app.simulate_post("/keys", json={"name": "ada", "scope": "read"}, headers=bearer)
    spare = [f"spare-{number}" for number in range(SPARE)]
    for name in spare:
        await store.definitions.register(parse({**ONE_STEP, "name": name}))
    for scope in SCOPES:
        override = LimitOverride(Allowed(1), "2026-01-01T00:00:00Z")
        await store.limit_configs.override((LimitKind.RUNS, scope), None, override)
    return Reach(
        run_ids,
        scheduled,
        answered,
        await _polled(app),
        [str(one["seq"]) for one in letters],
        spare,
        [mapped],
        kept[5:],
        kept[:5],
        await _failed(app, store),
    )


async def _failed(app: ASGIConductor, store: Store) -> list[str]:
    """Runs whose step `a` has failed."""
    bearer = {"Authorization": f"Bearer {TOKENS[Access.API]}"}
    inputs = {"workflow_id": "broken", "inputs": list(range(20))}
    run_ids: list[str] = (await app.simulate_post("/runs/bulk", json=inputs, headers=bearer)).json["run_ids"]
    for run_id in run_ids:
        await store.history.append(StepStarted(run_id=run_id, step_id="a", attempt_number=1, payload=StepFacts()))
        failure = Failure(error="no", failure_type="non_retriable")
        await store.history.append(StepFailed(run_id=run_id, step_id="a", attempt_number=1, payload=failure))
        await store.history.append(WorkflowFailed(run_id=run_id, payload=RunFailure("no")))
    return run_ids


async def _polled(app: ASGIConductor) -> list[str]:
    """The ids of all tasks, handed out."""
    found: list[str] = []
    while len(found) < TASKS:
        asked = {"task_types": ["fuzzed"], "max_tasks": TASKS, "timeout_ms": 10_000}
        bearer = [(b"authorization", f"Bearer {TOKENS[Access.BRIDGE]}".encode())]
        request = Request("pollTasks", "POST", [b"v1", b"tasks", b"poll"], [], bearer, asked)
        answer = await _answer(app, request, leaves_s=ANSWER_S_MAX)
        found += [task["task_id"] for task in orjson.loads(answer.body)]
    return found


async def _answer(app: ASGIConductor, request: Request, leaves_s: float = LEAVES_S) -> Answer:
    """What the application answers; the client goes away after a moment, whatever it waits for."""
    body = request.content()
    if request.operation == "receiveWebhook" and not any(name == b"x-signature-256" for name, _ in request.headers):
        request.headers.append(
            (b"x-signature-256", b"sha256=" + hmac.new(SECRET.encode(), body, sha256).hexdigest().encode())
        )
    if not any(name == b"content-length" for name, _ in request.headers):
        request.headers.append((b"content-length", str(len(body)).encode()))
    chunks = iter([(body[:100], True), (body[100:], False)])
    sent: list[Any] = []

    async def receive() -> Mapping[str, Any]:
        if (chunk := next(chunks, None)) is not None:
            return {"type": "http.request", "body": chunk[0], "more_body": chunk[1]}
        await asyncio.sleep(leaves_s)
        return {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await app.app(_scope(request), receive, send)
    except Exception as error:  # which a server answers with 500
        return Answer(500, "", repr(error).encode())
    start = next(event for event in sent if event["type"] == "http.response.start")
    headers = {
        bytes(name).decode("latin-1").lower(): bytes(value).decode("latin-1") for name, value in start["headers"]
    }
    content = b"".join(event.get("body", b"") or b"" for event in sent if event["type"] == "http.response.body")
    return Answer(start["status"], headers.get("content-type", "").partition(";")[0], content)


def _scope(request: Request) -> dict[str, Any]:
    """As the server makes it."""
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": request.headers,
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 50_000),
    }


def _allowed(request: Request, answer: Answer) -> bool:
    """Success, an error in plain text that is the request's own fault, or one that the document tells of."""
    if answer.status in (502, 503):  # a run that was called may be cancelled by another request
        return answer.media == "text/plain" and answer.status in refused(OF_NAME[request.operation])
    if 400 <= answer.status < 500:
        return answer.media == "text/plain" and (bool(answer.body.strip()) or request.method == "HEAD")
    return 200 <= answer.status < 400 and (
        answer.media != "application/json" or not answer.body or _is_json(answer.body)
    )


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _check_spread(seen: Counter[tuple[str, int]]) -> None:
    """The requests reached what they were aimed at, and the service was there for them."""
    for operation in OPERATIONS:
        statuses = {status for name, status in seen if name == operation.name}
        assert operation.name in FOR_OTHERS or statuses & operation.answers.keys(), operation.name
    assert seen.total() == REQUESTS
    assert (
        sum(count for (name, status), count in seen.items() if status == 503 and name != "getReady") <= REQUESTS // 100
    )
    assert sum(count for (_, status), count in seen.items() if status < 300) > REQUESTS // 10
    assert sum(count for (_, status), count in seen.items() if status == 400) > REQUESTS // 10


async def _check_health(app: ASGIConductor) -> None:
    assert 200 == (await app.simulate_get("/health")).status_code
    bearer = {"Authorization": f"Bearer {TOKENS[Access.API]}"}
    started = await app.simulate_post("/runs", body=orjson.dumps({"workflow": "greet"}), headers=bearer)
    assert 201 == started.status_code
    assert 200 == (await app.simulate_get(f"/runs/{started.json['run_id']}", headers=bearer)).status_code
    for path in ("/workflows", "/runs", "/triggers", "/dead-letters", "/workers"):
        assert 200 == (await app.simulate_get(path, headers=bearer)).status_code, path
