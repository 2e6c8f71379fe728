"""A running service in which every operation of the API finds what it asks for."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx2
import orjson
from msgspec import Struct

from penstock.http.openapi.document import path_parameters
from penstock.http.openapi.operations.operation import Access, Operation
from penstock.http.openapi.operations.workflows import GREET
from tests.support.waiting import until

API_TOKEN, BRIDGE_TOKEN, SECRET = "s3cret", "br1dge", "shared"
HEADERS: Mapping[Access, Mapping[str, str]] = {
    Access.API: {"Authorization": f"Bearer {API_TOKEN}"},
    Access.BRIDGE: {"Authorization": f"Bearer {BRIDGE_TOKEN}"},
}
REVIEW = {"name": "review", "steps": [{"id": "review", "type": "approval"}]}
REFUSED = {"action": "fail", "error": "no", "failure_type": "non_retriable"}


class Found(Struct, frozen=True):
    """What a request names; what it does not is as in the example."""

    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}


class World:
    """Owned by a test module; makes what is to be found as it is needed, through the API itself."""

    def __init__(self, url: str) -> None:
        self._client = httpx2.Client(base_url=url, trust_env=False, timeout=30)

    def __enter__(self) -> World:
        for document in (GREET, REVIEW):
            self.ask("POST", "/workflows", document)
        self.define_webhook()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def define_webhook(self) -> None:
        """Also where others have given it another secret."""
        self.ask("PUT", "/triggers/push", {"workflow": "greet", "webhook": {"secret": SECRET}})

    def revoke_key(self, name: str) -> None:
        """If there is one, so that a key of this name can be made."""
        if name in [one["name"] for one in self.ask("GET", "/keys")]:
            self.ask("DELETE", f"/keys/{name}")

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The JSON of an answer of success."""
        access = Access.BRIDGE if path.startswith("/v1/") else Access.API
        content = None if body is None else orjson.dumps(body)
        return (
            self._client.request(method, path, content=content, params=query, headers=HEADERS[access])
            .raise_for_status()
            .json()
        )

    def send(self, operation: Operation, found: Found | None = None, **headers: str) -> httpx2.Response:
        """A request that this operation answers with success."""
        found = found or FINDERS.get(operation.name, _by_path)(self, operation)
        body = b"" if operation.body is None else orjson.dumps(operation.body.example)
        path = operation.path
        for parameter in path_parameters(operation):
            path = path.replace(f"{{{parameter.name}}}", found.path.get(parameter.name, parameter.example))
        required = {one.name: one.example for one in operation.parameters if one.required}
        shown = {**HEADERS.get(operation.access, {}), **_signed(operation, body), **headers}
        return self._client.request(
            operation.method, path, params={**required, **found.query}, content=body, headers=shown
        )

    def run(self, workflow: str = "greet", **more: str) -> str:
        return str(self.ask("POST", "/runs", {"workflow": workflow, **more})["run_id"])

    def polled(self) -> tuple[str, str]:
        """A run of a workflow of its own, and the id of its only task, which has been polled."""
        name = f"w{uuid4().hex}"
        self.ask("POST", "/workflows", {"name": name, "steps": [{"id": "a", "task": name}]})
        run_id = self.run(name)
        (found,) = self.ask("POST", "/v1/tasks/poll", {"task_types": [name], "max_tasks": 1, "timeout_ms": 20_000})
        return run_id, str(found["task_id"])

    def failed(self) -> str:
        """A run that has failed, and has a dead letter."""
        run_id, task_id = self.polled()
        self.ask("POST", f"/v1/tasks/{task_id}/resolve", REFUSED)
        assert "failed" == self.ask("GET", f"/runs/{run_id}", wait_ms="20000")["status"]
        return run_id

    def token(self, run_id: str) -> str:
        """Of an approval, as soon as it is asked for."""

        async def find() -> str | None:
            events = self.ask("GET", f"/runs/{run_id}/events")
            return next((event["payload"]["token"] for event in events if event["type"] == "approval.requested"), None)

        return str(asyncio.run(until(find)))


def _signed(operation: Operation, body: bytes) -> Mapping[str, str]:
    if operation.access is not Access.SIGNATURE:
        return {}
    return {"X-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, sha256).hexdigest()}


def _by_path(world: World, operation: Operation) -> Found:
    return Found({"run_id": world.run()}) if "{run_id}" in operation.path else Found()


def _scheduled(world: World, _: Operation) -> Found:
    return Found({"run_id": world.run(run_at="2100-01-01T00:00:00Z")})


def _undecided(world: World, _: Operation) -> Found:
    run_id = world.run("review")
    return Found({"run_id": run_id}, {"token": world.token(run_id)})


def _waiting(world: World, _: Operation) -> Found:
    run_id = world.run("review")
    world.token(run_id)
    return Found({"run_id": run_id, "step_id": "review"})


def _limited(world: World, operation: Operation) -> Found:
    """A limit; one that is overridden, if that is to be taken back."""
    name = f"w{uuid4().hex}"
    world.ask("POST", "/workflows", {**GREET, "name": name, "concurrency": [{"limit": 1}]})
    if operation.name == "resetLimit":
        world.ask("PUT", f"/limits/{name}", {"limit": 2})
    return Found({"scope": name})


def _failed(world: World, _: Operation) -> Found:
    return Found({"run_id": world.failed()})


def _two(world: World, _: Operation) -> Found:
    return Found({"run_id": world.run(), "other": world.run()})


def _failed_step(world: World, _: Operation) -> Found:
    return Found({"run_id": world.failed(), "step_id": "a"})


def _trigger(world: World, _: Operation) -> Found:
    name = f"t{uuid4().hex}"
    world.ask("PUT", f"/triggers/{name}", {"workflow": "greet", "webhook": {}})
    return Found({"name": name})


def _unneeded(world: World, _: Operation) -> Found:
    """A workflow that has neither runs nor triggers."""
    name = f"w{uuid4().hex}"
    world.ask("POST", "/workflows", {**GREET, "name": name})
    return Found({"name": name})


def _responding(world: World, _: Operation) -> Found:
    """A workflow that answers its caller without a worker."""
    name = f"w{uuid4().hex}"
    step = {"id": "a", "type": "respond", "config": {"body": {"said": "${{ input }}"}}}
    world.ask("POST", "/workflows", {"name": name, "steps": [step]})
    return Found({"name": name})


def _no_key(world: World, operation: Operation) -> Found:
    """None has the name of the example."""
    assert operation.body is not None
    assert isinstance(operation.body.example, dict)
    world.revoke_key(operation.body.example["name"])
    return Found()


def _key(world: World, _: Operation) -> Found:
    name = f"k{uuid4().hex}"
    world.ask("POST", "/keys", {"name": name, "scope": "read"})
    return Found({"name": name})


def _dead(world: World, _: Operation) -> Found:
    (dead_letter,) = world.ask("GET", "/dead-letters", run=world.failed())
    return Found({"seq": str(dead_letter["seq"])})


def _polled(world: World, _: Operation) -> Found:
    return Found({"task_id": world.polled()[1]})


def _answered(world: World, _: Operation) -> Found:
    """A step that has an output."""
    run_id, task_id = world.polled()
    world.ask("POST", f"/v1/tasks/{task_id}/resolve", {"action": "complete", "output": [1]})
    return Found({"run_id": run_id, "step_id": "a"})


def _kept(world: World, _: Operation) -> Found:
    """A step that has a checkpoint."""
    run_id, task_id = world.polled()
    world.ask("POST", f"/v1/tasks/{task_id}/resolve", {"action": "checkpoint", "data": {"page": 7}})
    return Found({"run_id": run_id, "step_id": "a"})


def _mapped(world: World, _: Operation) -> Found:
    """A map that has begun."""
    name = f"w{uuid4().hex}"
    world.ask("POST", "/workflows", {"name": name, "steps": [{"id": "m", "type": "map", "task": name}]})
    run_id = str(world.ask("POST", "/runs", {"workflow": name, "input": [1, 2]})["run_id"])

    async def begun() -> bool:
        return "items" in world.ask("GET", f"/runs/{run_id}")["steps"]["m"]

    asyncio.run(until(begun))
    return Found({"run_id": run_id, "step_id": "m"})


def _signal(world: World, _: Operation) -> Found:
    run_id = world.run()
    world.ask("POST", f"/runs/{run_id}/signal/paid", 1)
    return Found({"run_id": run_id})


FINDERS: Mapping[str, Callable[[World, Operation], Found]] = {
    "getScheduled": _scheduled,
    "unschedule": _scheduled,
    "decide": _undecided,
    "decideAsOperator": _waiting,
    "retryRun": _failed,
    "getStream": _failed,  # so that it ends
    "diffRuns": _two,
    "rerunRun": _failed,
    "retryStep": _failed_step,
    "skipStep": _failed_step,
    **dict.fromkeys(("getTrigger", "putTrigger", "deleteTrigger", "fireTrigger", "testTrigger"), _trigger),
    **dict.fromkeys(("getDeadLetter", "discardDeadLetter", "replayDeadLetter"), _dead),
    **dict.fromkeys(("getLimit", "setLimit", "resetLimit"), _limited),
    "createKey": _no_key,
    "revokeKey": _key,
    "deleteWorkflow": _unneeded,
    "callWorkflow": _responding,
    "resolveTask": _polled,
    "getStepOutput": _answered,
    "getStepInput": _answered,
    "getStepCheckpoint": _kept,
    "getMapItems": _mapped,
    "awaitSignal": _signal,
}
