"""What the tests of the bridge do as its workers: poll and resolve over HTTP, and record what is sent to the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from penstock.broker import names
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.records.leases import StoredLease
from penstock.broker.store import Store
from tests.support.waiting import until

TOKEN = "bridge-secret"


def client(url: str, token: str | None = TOKEN) -> httpx2.AsyncClient:
    """Its caller closes it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(
        base_url=url,
        headers=headers,
        trust_env=False,
        timeout=30,
        limits=httpx2.Limits(max_connections=None, keepalive_expiry=5),
    )


async def poll(
    http: httpx2.AsyncClient, *tasks: str, max_tasks: int = 1, timeout_ms: int = 10_000, **more: Any
) -> list[dict[str, Any]]:
    body = {"task_types": list(tasks), "max_tasks": max_tasks, "timeout_ms": timeout_ms, **more}
    answer = await http.post("/v1/tasks/poll", json=body)
    assert 200 == answer.status_code, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def polled(http: httpx2.AsyncClient, task: str, **more: Any) -> dict[str, Any]:
    """The one task that is there."""
    (found,) = await poll(http, task, **more)
    return found


async def resolve(
    http: httpx2.AsyncClient, task: Mapping[str, Any] | str, action: str, **fields: Any
) -> httpx2.Response:
    task_id = task if isinstance(task, str) else task["task_id"]
    return await http.post(f"/v1/tasks/{task_id}/resolve", json={"action": action, **fields})


async def leased(store: Store, task: Mapping[str, Any]) -> StoredLease:
    """The lease of a polled task; it is on its way to the broker when the poll is answered."""

    async def find() -> StoredLease | None:
        return await store.leases.get(task["task_id"])

    kept = await until(find)
    assert kept is not None
    return kept


async def requests_waiting(store: Store, task: str) -> int:
    """How many requests for tasks of the type the broker has; none when nobody has ever asked."""
    try:
        info = await store.broker.api(f"CONSUMER.INFO.{names.TASKS}.{names.task_consumer(task)}")
    except ApiError as error:
        if error.err_code != Code.CONSUMER_NOT_FOUND:
            raise
        return 0
    return int(info["num_waiting"])


async def is_polled(store: Store, task: str) -> None:
    """Return once the broker knows that someone waits for a task of the type."""

    async def waits() -> bool:
        return await requests_waiting(store, task) > 0

    await until(waits)


@asynccontextmanager
async def room_for_chunks(store: Store, bytes_more: int) -> AsyncIterator[None]:
    """The broker stores no more bytes of chunks than these, for the time of the block."""
    async with no_room(store, names.CHUNKS, bytes_more):
        yield


@asynccontextmanager
async def no_room(store: Store, stream: str, bytes_more: int = 0) -> AsyncIterator[None]:
    """The broker stores no more bytes in the stream than these, for the time of the block."""
    info = await store.broker.api(f"STREAM.INFO.{stream}")
    limits = {"max_bytes": info["state"]["bytes"] + bytes_more, "discard": "new"}
    await store.broker.api(f"STREAM.UPDATE.{stream}", {**info["config"], **limits})
    try:
        yield
    finally:
        await store.broker.api(f"STREAM.UPDATE.{stream}", info["config"])


@asynccontextmanager
async def frames(store: Store, stream: str = "TASK_QUEUES", task: str | None = None) -> AsyncIterator[list[bytes]]:
    """The acknowledgements that are sent to the broker, in their order; of one task type, or of all: then also those
    that are still on their way."""
    seen: list[bytes] = []

    async def see(msg: Any) -> None:
        seen.append(msg.data)

    subscription = await store.broker.subscribe(
        f"$JS.ACK.{stream}.{'*' if task is None else names.task_consumer(task)}.>", see
    )
    await store.broker.flush()
    try:
        yield seen
    finally:
        await subscription.unsubscribe()
