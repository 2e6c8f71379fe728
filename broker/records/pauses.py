"""Deliveries of a task that were given back on purpose: they do not count as failed deliveries."""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import Struct

from penstock.broker import record_keys
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.pull import Delivery
from penstock.engine.errors import Conflict

# earlier deliveries are not counted: each would cost a write
FREE_DELIVERIES = 5


class Execution(Protocol):
    """One execution of a step, from a task or its lease."""

    @property
    def run_id(self) -> str: ...
    @property
    def step_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def iteration(self) -> int: ...
    @property
    def item(self) -> int | None: ...


class PauseRecord(Struct, frozen=True, omit_defaults=True):
    """Stored beside the step's checkpoint. `pauses` counts the pauses of one execution; `name` is the label of the
    last."""

    pauses: int = 0
    name: str | None = None
    attempt: int = 1
    iteration: int = 0


_DECODER = msgspec.json.Decoder(PauseRecord)


class Pauses:
    """The pause entries in the bucket of checkpoints."""

    def __init__(self, checkpoints: Bucket) -> None:
        self._bucket = checkpoints

    async def count(self, execution: Execution) -> int:
        """How many deliveries of this execution were given back on purpose."""
        found, _ = await self._read(execution)
        return found.pauses

    async def add(self, execution: Execution, name: str | None = None) -> None:
        """Count one more; a label other than None replaces the last one. Raises Unavailable."""
        while True:
            found, revision = await self._read(execution)
            entry = PauseRecord(
                found.pauses + 1, found.name if name is None else name, execution.attempt, execution.iteration
            )
            try:
                await self._bucket.put(_key(execution), msgspec.json.encode(entry), revision)
                return
            except Conflict:  # a concurrent write has counted
                continue

    async def give_back(self, execution: Execution, delivery: Delivery, delay_s: float = 0.0) -> None:
        """Let the broker deliver the task again after a delay, without counting this delivery."""
        if delivery.deliveries >= FREE_DELIVERIES:
            await self.add(execution)
        await delivery.give_back(delay_s)

    async def _read(self, execution: Execution) -> tuple[PauseRecord, int]:
        """The entry, reset if it was made for another execution, and its revision."""
        entry = await self._bucket.get(_key(execution))
        if entry is None:
            return PauseRecord(), 0
        found = _DECODER.decode(entry.value)
        if (found.attempt, found.iteration) != (execution.attempt, execution.iteration):
            found = PauseRecord(0, found.name)
        return found, entry.revision


def _key(execution: Execution) -> str:
    return record_keys.pause_key(execution.run_id, execution.step_id)
