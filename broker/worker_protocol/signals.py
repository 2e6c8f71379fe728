"""Signals of runs: wait for one, send one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.broker import message_ids, record_keys
from penstock.broker.store import Store
from penstock.broker.worker_protocol.reports import now
from penstock.config.process.crash_points import reached
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived

POLL_S = 5.0  # a change notification may be lost
SOON_S = 0.02  # or come before the change can be read


async def get(store: Store, run_id: str, name: str) -> bytes | None:
    """The payload of the run's signal; None without one. Raises Unavailable."""
    entry = await store.signals.get(record_keys.signal_key(run_id, name))
    return None if entry is None else entry.value


async def wait(store: Store, run_id: str, name: str) -> bytes:
    """The payload of the run's signal, as soon as it exists; an earlier one counts. Raises Unavailable."""
    async with store.signals.change_notification(record_keys.signal_key(run_id, name)) as changed:
        again_s = SOON_S  # a value written just before the subscription may not be readable yet
        while True:
            changed.clear()
            payload = await get(store, run_id, name)
            if payload is not None:
                return payload
            with suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await changed.wait()
            again_s = SOON_S if changed.is_set() else min(again_s * 2, POLL_S)


async def send(store: Store, run_id: str, name: str, payload: bytes, by: str | None = None) -> None:
    """Store the signal, then append it to the run's history; `by` is who sends it. Raises Unavailable: the outcome is
    unknown, sending it again is safe."""
    revision = await put(store, run_id, name, payload)
    reached("signal.stored")
    await store.history.append(
        _received(run_id, name, len(payload), by), message_id=message_ids.of_signal(run_id, name, revision)
    )
    reached("signal.reported")


async def put(store: Store, run_id: str, name: str, payload: bytes) -> int:
    """Store the signal; returns its revision. Raises Unavailable: the outcome is unknown."""
    return await store.signals.put(record_keys.signal_key(run_id, name), payload)


async def report(store: Store, run_id: str, name: str, size: int, revision: int) -> None:
    """Append a stored signal to the run's history; returns when that is stored, however long the broker is away."""
    await store.history.send(_received(run_id, name, size), message_ids.of_signal(run_id, name, revision))


def _received(run_id: str, name: str, size: int, by: str | None = None) -> SignalReceived:
    return SignalReceived(run_id=run_id, timestamp=now(), payload=SignalRef(name=name, size=size, by=by))
