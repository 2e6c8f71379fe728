"""/workers: who has registered as a worker. For people; the engine never looks there."""

from __future__ import annotations

import orjson
from falcon.asgi import Request, Response

from penstock.http import answers
from penstock.http.backend import Backend


class Workers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The registrations that are alive."""
        entries = await self._backend.store.workers.all()
        answers.ok_raw(resp, [entry.value for entry in entries if _is_object(entry.value)])


def _is_object(value: bytes) -> bool:
    """Workers of any make write there: one that writes something else must not spoil the list."""
    try:
        return isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
