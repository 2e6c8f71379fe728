"""Actors of runs that wait in a long queue: more than fit into memory as objects, and soon to go on."""

from __future__ import annotations

import time

from msgspec import Struct

from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.shared.mailbox import PartitionQueue
from penstock.config.limits import MIB
from penstock.engine.run.state import from_snapshot, to_snapshot

PACKED_BYTES_MAX = 128 * MIB  # some 100,000 short runs
BESIDE_BYTES = 600  # of a packed actor, besides the state of its run


class _Packed(Struct, gc=False):
    actor: RunActor
    state: bytes
    since: int  # monotonic, in s; not a float, as in broker/nats/pull.py


class PackedActors:
    """Owned by a shard, which has taken them out of its actors. The state of each run is kept as its snapshot reads: a
    fifth of the memory, and a tenth of the CPU of reading the run from the store again."""

    __slots__ = ("_bytes", "_packed")

    def __init__(self) -> None:
        self._packed: dict[str, _Packed] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._packed

    def add(self, actor: RunActor) -> bool:
        """Pack an idle actor. False: there is no room, or others may want to see the state of its run."""
        run = actor.run
        if run is None or run.slots or self._bytes >= PACKED_BYTES_MAX:
            return False
        packed = self._packed[actor.run_id] = _Packed(actor, to_snapshot(run), int(time.monotonic()))
        self._bytes += len(packed.state) + BESIDE_BYTES
        actor.run = None
        return True

    def take(self, run_id: str) -> RunActor | None:
        """The actor of this run as it was, which is not here any more; None if it was not."""
        packed = self._packed.pop(run_id, None)
        if packed is None:
            return None
        self._bytes -= len(packed.state) + BESIDE_BYTES
        packed.actor.run = from_snapshot(packed.state)
        return packed.actor

    def remove_older_than(self, before: float) -> list[RunActor]:
        """Remove and return, without the states of their runs, the actors that were packed before this monotonic
        time."""
        gone = []
        for packed in self._packed.values():
            if packed.since >= before:
                break  # in the order of their age
            gone.append(packed)
        return [self._remove(packed) for packed in gone]

    def remove_of(self, queue: PartitionQueue) -> None:
        """Remove the actors of a partition."""
        for packed in [packed for packed in self._packed.values() if packed.actor.queue is queue]:
            self._remove(packed)

    def _remove(self, packed: _Packed) -> RunActor:
        del self._packed[packed.actor.run_id]
        self._bytes -= len(packed.state) + BESIDE_BYTES
        return packed.actor
