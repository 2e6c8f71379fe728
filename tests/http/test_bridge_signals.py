"""Signals over the bridge: what its workers' functions may wait for and send."""

from __future__ import annotations

import asyncio
import time

import httpx2
import pytest

from penstock.broker import record_keys
from penstock.broker.store import Store
from penstock.config.limits import SIGNAL_BYTES_MAX
from penstock.engine.run.events import SignalReceived
from tests.support.world import chain, start
from tests.worker.task_queue import new_run_id, reported


def path(run_id: str, name: str = "go") -> str:
    return f"/v1/runs/{run_id}/signals/{name}"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [(b'{"a": 1}', "application/json"), (b"\xff raw", "application/octet-stream"), (b"", "application/octet-stream")],
)
async def test_signal_is_given_byte_for_byte_when_it_comes(
    store: Store, bridge: httpx2.AsyncClient, payload: bytes, kind: str
) -> None:
    run_id = new_run_id()
    waits = asyncio.create_task(bridge.get(path(run_id), params={"timeout_ms": 20_000}))
    await asyncio.wait((waits,), timeout=0.2)
    assert not waits.done()
    await store.signals.put(record_keys.signal_key(run_id, "go"), payload)
    answer = await asyncio.wait_for(waits, 3)
    assert (200, payload, kind) == (answer.status_code, answer.content, answer.headers["content-type"])
    again = await bridge.get(path(run_id))
    assert (200, payload) == (again.status_code, again.content)


async def test_signal_that_does_not_come_is_204(bridge: httpx2.AsyncClient) -> None:
    begin = time.monotonic()
    assert 204 == (await bridge.get(path(new_run_id()))).status_code
    answer = await bridge.get(path(new_run_id()), params={"timeout_ms": 300})
    assert (204, b"") == (answer.status_code, answer.content)
    assert 0.3 <= time.monotonic() - begin < 5


async def test_signal_is_stored_and_written_to_the_history_of_its_run(store: Store, bridge: httpx2.AsyncClient) -> None:
    run_id = await start(store, chain("signalled"))
    answer = await bridge.post(path(run_id), content=b"\x00raw")
    assert {"run_id": run_id, "signal": "go", "status": "sent"} == answer.json()
    entry = await store.signals.get(record_keys.signal_key(run_id, "go"))
    assert entry is not None
    assert b"\x00raw" == entry.value
    *_, told = await reported(store, run_id, lambda event: isinstance(event, SignalReceived))
    assert isinstance(told, SignalReceived)
    assert ("go", 4) == (told.payload.name, told.payload.size)


async def test_signal_at_its_limit_and_one_past_it(store: Store, bridge: httpx2.AsyncClient) -> None:
    run_id = await start(store, chain("signalled"))
    assert 200 == (await bridge.post(path(run_id), content=b"x" * SIGNAL_BYTES_MAX)).status_code
    assert 413 == (await bridge.post(path(run_id, "more"), content=b"x" * (SIGNAL_BYTES_MAX + 1))).status_code
    assert await store.signals.get(record_keys.signal_key(run_id, "more")) is None


async def test_signal_to_a_run_that_does_not_exist_is_404_and_leaves_nothing(
    store: Store, bridge: httpx2.AsyncClient
) -> None:
    run_id = new_run_id()
    answer = await bridge.post(path(run_id), content=b"1")
    assert (404, f"run {run_id} does not exist\n") == (answer.status_code, answer.text)
    assert await store.signals.get(record_keys.signal_key(run_id, "go")) is None
    assert [] == await store.history.read(run_id)


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (path("no-run"), 404, "does not exist"),
        (path(""), 400, "the run id is missing"),
        (path("0" * 32, ""), 400, "the signal name is missing"),
        (path("0" * 32, "a b"), 400, "signal name"),
        (path("0" * 32) + "?timeout_ms=60001", 400, "timeout_ms must be a whole number from 0 to 60000"),
        (path("0" * 32) + "?wait=1", 400, 'unknown query parameter "wait"'),
    ],
)
async def test_bad_target_is_named(bridge: httpx2.AsyncClient, found: str, status: int, words: str) -> None:
    answer = await bridge.get(found)
    assert status == answer.status_code
    assert words in answer.text
