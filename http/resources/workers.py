"""/workers: the registered workers. For people; the engine does not read it."""

from __future__ import annotations

from collections import Counter

import msgspec
import orjson
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.broker.store import Store
from penstock.http.backend import Backend
from penstock.http.messages import responses


class _Served(Struct, frozen=True):
    """The task types and group in a registration."""

    task_types: list[str]
    worker_group: str | None = None


class WorkersResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The current registrations."""
        entries = await self._backend.store.workers.all()
        responses.ok_raw(resp, [entry.value for entry in entries if _is_object(entry.value)])


def _is_object(value: bytes) -> bool:
    """Whether a registration is a JSON object; workers of any origin write there, and other values are left out."""
    try:
        return isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False


async def serving(store: Store) -> Counter[tuple[str, str | None]]:
    """How many workers are registered for each task type and group. Raises Unavailable."""
    found = Counter[tuple[str, str | None]]()
    for entry in await store.workers.all():
        try:
            served = msgspec.json.decode(entry.value, type=_Served)
        except msgspec.MsgspecError:
            continue
        found.update((task, served.worker_group or None) for task in set(served.task_types))
    return found
