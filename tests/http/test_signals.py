from __future__ import annotations

import asyncio

import pytest
from falcon.testing import ASGIConductor

from penstock.broker import record_keys
from penstock.broker.store import Store
from penstock.broker.worker_protocol import signals
from penstock.config.limits import SIGNAL_BYTES_MAX
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived, decode


@pytest.fixture
async def run_id(http: ASGIConductor) -> str:
    return str((await http.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"])


@pytest.mark.parametrize("body", [b"", b'{"ok":true}', b"\x00\xff\n", b"{", b"x" * SIGNAL_BYTES_MAX], ids=len)
async def test_a_signal_is_kept_unchanged_and_written_to_the_history(
    http: ASGIConductor, store: Store, run_id: str, body: bytes
) -> None:
    answer = await http.simulate_post(f"/runs/{run_id}/signal/go.on", body=body)
    assert (200, {"status": "sent", "run_id": run_id, "signal": "go.on"}) == (answer.status_code, answer.json)
    entry = await store.signals.get(record_keys.signal_key(run_id, "go.on"))
    assert entry is not None
    assert body == entry.value
    assert [SignalRef("go.on", len(body))] == await _told(store, run_id)


async def test_who_waits_for_a_signal_gets_it(http: ASGIConductor, store: Store, run_id: str) -> None:
    waiting = asyncio.create_task(signals.wait(store, run_id, "go"))
    await http.simulate_post(f"/runs/{run_id}/signal/go", body=b"now")
    assert b"now" == await waiting


async def test_a_second_signal_of_a_name_takes_the_place_of_the_first(
    http: ASGIConductor, store: Store, run_id: str
) -> None:
    for body in (b"first", b"second"):
        assert 200 == (await http.simulate_post(f"/runs/{run_id}/signal/go", body=body)).status_code
    assert b"second" == await signals.wait(store, run_id, "go")
    assert [SignalRef("go", 5), SignalRef("go", 6)] == await _told(store, run_id)


async def test_a_run_takes_signals_before_it_starts_and_after_its_end(
    http: ASGIConductor, store: Store, run_id: str
) -> None:
    request = b'{"workflow":"one","run_at":"2099-01-01T00:00:00Z"}'
    scheduled = (await http.simulate_post("/runs", body=request)).json["run_id"]
    await http.simulate_post(f"/runs/{run_id}/cancel")
    for found, status in ((scheduled, "scheduled"), (run_id, "cancelled")):
        assert 200 == (await http.simulate_post(f"/runs/{found}/signal/go", body=b"1")).status_code
        assert 1 == len(await _told(store, found))
        assert status == (await http.simulate_get(f"/runs/{found}")).json["status"]


async def test_one_byte_too_many_is_refused_and_nothing_is_stored(
    http: ASGIConductor, store: Store, run_id: str
) -> None:
    answer = await http.simulate_post(f"/runs/{run_id}/signal/go", body=b"x" * (SIGNAL_BYTES_MAX + 1))
    assert 413 == answer.status_code
    assert str(SIGNAL_BYTES_MAX) in answer.text
    assert await store.signals.get(record_keys.signal_key(run_id, "go")) is None
    assert [] == await _told(store, run_id)


@pytest.mark.parametrize("run_id", ["0" * 32, "xyz", "F" * 32])
async def test_a_signal_for_no_run_is_not_found_and_not_stored(http: ASGIConductor, store: Store, run_id: str) -> None:
    assert 404 == (await http.simulate_post(f"/runs/{run_id}/signal/go", body=b"1")).status_code
    assert await store.signals.get(record_keys.signal_key(run_id, "go")) is None


@pytest.mark.parametrize("name", [".", "..", "a..b", "a b", "a*", "%3E", "%C3%BC", "a" * 129])
async def test_a_bad_signal_name_is_refused_and_named(http: ASGIConductor, run_id: str, name: str) -> None:
    answer = await http.simulate_post(f"/runs/{run_id}/signal/{name}", body=b"1")
    assert 400 == answer.status_code
    assert "signal name" in answer.text


async def _told(store: Store, run_id: str) -> list[SignalRef]:
    events = [decode(stored.data) for stored in await store.history.read(run_id)]
    return [event.payload for event in events if isinstance(event, SignalReceived)]
