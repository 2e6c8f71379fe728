"""The workers as they describe themselves, by worker and by what they serve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Struct

from penstock.broker.nats.buckets import Entry
from penstock.broker.store import Store
from penstock.broker.worker_messages import WorkerRegistration
from penstock.engine.waiting.facts import TaskKind

_DECODER = msgspec.json.Decoder(WorkerRegistration)


class RegisteredWorker(Struct, frozen=True):
    """A registration, and when it was written (s since the epoch, the broker's clock)."""

    entry: WorkerRegistration
    at: float

    @property
    def group(self) -> str | None:
        group = self.entry.worker_group
        return None if group is UNSET else group or None

    @property
    def kinds(self) -> frozenset[TaskKind]:
        """The types and groups of tasks that it takes."""
        return frozenset((task, self.group) for task in self.entry.task_types)


class Registrations:
    """All registrations of one time."""

    def __init__(self, workers: Iterable[RegisteredWorker]) -> None:
        self.workers = {one.entry.worker_id: one for one in workers}

    def serving(self, kind: TaskKind) -> Sequence[RegisteredWorker]:
        return [one for one in self.workers.values() if kind in one.kinds]

    def elsewhere(self, kind: TaskKind) -> int:
        """How many serve the type, but another group or none."""
        task = kind[0]
        return sum(task in one.entry.task_types and kind not in one.kinds for one in self.workers.values())


async def registrations(store: Store) -> Registrations:
    """The workers that are registered now; malformed registrations are left out. Raises Unavailable."""
    found = map(_registered, await store.workers.all())
    return Registrations(one for one in found if one is not None)


def _registered(entry: Entry) -> RegisteredWorker | None:
    """Workers of any origin write there."""
    try:
        return RegisteredWorker(_DECODER.decode(entry.value), entry.at)
    except msgspec.MsgspecError:
        return None
