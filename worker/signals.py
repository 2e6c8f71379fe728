"""Signals of runs: wait for one, send one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import SIGNAL_BYTES_MAX
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.events import SignalReceived, SignalRef
from penstock.engine.identifiers import is_run_id, problem_with, quoted
from penstock.worker.facts import now
from penstock.worker.patience import patiently

POLL_S = 5.0  # the doorbell may miss a ring


def signal_json(value: Any) -> bytes:
    """The payload as stored: bytes as they are, anything else as JSON. Raises TooLarge over 1 MiB."""
    payload = value if isinstance(value, bytes) else orjson.dumps(value)
    if len(payload) > SIGNAL_BYTES_MAX:
        raise TooLarge(f"the signal has {len(payload)} bytes, {SIGNAL_BYTES_MAX} is the most")
    return payload


async def wait(store: Store, run_id: str, name: str) -> bytes:
    """The payload of the run's signal, as soon as it is there; one that came before counts. Raises Invalid for a bad name."""
    _check(run_id, name)
    key = names.signal_key(run_id, name)
    async with _doorbell(store, names.key_subject(names.SIGNALS, key)) as rung:
        while True:
            rung.clear()
            entry = await patiently(lambda: store.signals.get(key))
            if entry is not None:
                return entry.value
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await rung.wait()


async def send(store: Store, run_id: str, name: str, payload: bytes) -> None:
    """Store the signal, then tell it to the run's history. Raises Invalid for a bad run id or name."""
    _check(run_id, name)
    revision = await patiently(lambda: store.signals.put(names.signal_key(run_id, name), payload))
    event = SignalReceived(run_id=run_id, timestamp=now(), payload=SignalRef(name=name, size=len(payload)))
    await store.history.send(event, names.signal_message_id(run_id, name, revision))


def _check(run_id: str, name: str) -> None:
    found = (
        problem_with("signal name", name),
        None if is_run_id(run_id) else f"run id {quoted(run_id)} is not 32 lowercase hex characters",
    )
    if problems := [problem for problem in found if problem]:
        raise Invalid(*problems)


@asynccontextmanager
async def _doorbell(store: Store, subject: str) -> AsyncIterator[asyncio.Event]:
    """An event that is set about when something is stored under the subject."""
    rung = asyncio.Event()

    async def ring(_: object) -> None:
        rung.set()

    subscription = await store.broker.subscribe(subject, ring)
    try:
        yield rung
    finally:
        if store.broker.connected:
            await subscription.unsubscribe()
