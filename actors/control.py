"""The verbs of the control plane. Each one appends to a run's history and changes nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from msgspec import Raw
from uuid_utils import uuid7

from penstock.actors.loading import load
from penstock.broker.store import Store
from penstock.engine.definitions import WorkflowDef
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.events import Reason, Started, WorkflowCancelled, WorkflowStarted
from penstock.engine.state import Run, RunStatus


def now() -> str:
    """This moment, RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def new_run_id() -> str:
    """32 hex characters, time-ordered."""
    return uuid7().hex


def keyed_run_id(workflow: str, key: str) -> str:
    """The run id that an idempotency key stands for, for ever."""
    return sha256(f"{workflow}\n{key}".encode()).hexdigest()[:32]


async def start(store: Store, definition: WorkflowDef, digest: str, value: Raw, key: str | None = None) -> str:
    """Start one run and return its id. With a key, a second start is the first one. Raises Unavailable (outcome unknown)."""
    run_id = new_run_id() if key is None else keyed_run_id(definition.name, key)
    event = _started(run_id, definition, digest, value, now())
    if key is None:
        await store.history.append(event)
        return run_id
    with suppress(Conflict):  # it was started before, perhaps by a request whose answer got lost
        await store.history.append(event, expect_seq=0)
    return run_id


async def start_all(store: Store, definition: WorkflowDef, digest: str, values: Sequence[Raw]) -> list[str]:
    """Start up to 1,000 runs, all or none; ids in the order of the inputs. Raises Unavailable (outcome unknown)."""
    at = now()
    events = [_started(new_run_id(), definition, digest, value, at) for value in values]
    await store.history.append_all(events)
    return [event.run_id for event in events]


async def cancel(store: Store, run_id: str, reason: str | None = None) -> None:
    """Cancel a run; a cancelled one is fine. Raises NotFound, Conflict for a run that has ended otherwise, Unavailable."""
    run = await get(store, run_id)
    if run.status is RunStatus.CANCELLED:
        return
    if run.ended:
        raise Conflict(f"run {run_id} is {run.status} already")
    await store.history.append(WorkflowCancelled(run_id=run_id, timestamp=now(), payload=Reason(reason=reason)))


async def get(store: Store, run_id: str) -> Run:
    """The run as its log says now. Raises NotFound, Unavailable."""
    run = (await load(store, run_id)).run
    if run is None:
        raise NotFound(f"run {run_id} does not exist")
    return run


def _started(run_id: str, definition: WorkflowDef, digest: str, value: Raw, at: str) -> WorkflowStarted:
    payload = Started(workflow=definition.name, version=definition.version, digest=digest, input=value)
    return WorkflowStarted(run_id=run_id, timestamp=at, payload=payload)
