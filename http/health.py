"""/health: is the broker there, and does its storage work? /ready: has every part of the service started?"""

from __future__ import annotations

import orjson
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.broker import names
from penstock.broker.connection import ApiError, Broker
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.http import answers
from penstock.http.backend import Backend

ANSWERS_S_MAX = 0.3
API_S_MAX = 2.0


class Status(Struct, frozen=True):
    status: str


class Health:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        await _check_storage(self._backend.store, self._backend.settings)
        answers.ok(resp, Status("healthy"))


class Ready:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        missing = _ranges(await _unowned(self._backend.store.broker))
        problems = [f"no engine has the partitions {missing}"] if missing else []
        if not self._backend.index.alive():
            problems.append("the run index is not followed")
        if problems:
            raise Unavailable("\n".join(problems))
        answers.ok(resp, Status("ready"))


async def _check_storage(store: Store, settings: BrokerSettings) -> None:
    """Raises Unavailable that says why the storage does not work: no history, no answer, or full."""
    try:
        await store.history.last_seq()
        info = await store.broker.api("INFO", timeout_s=API_S_MAX)
    except ApiError as error:
        raise Unavailable(f"the broker's storage does not work: {error}") from error
    limit = _limit(info["limits"]["max_storage"], settings)
    if limit is not None and info["storage"] + PAYLOAD_BYTES_MAX > limit:
        raise Unavailable(f"the broker's storage is full: {info['storage']} of {limit} bytes are used")


def _limit(account: int, settings: BrokerSettings) -> int | None:
    """Bytes that may be stored. The embedded broker's limit is the server's, of which its account knows nothing."""
    if account > 0:
        return account
    return settings.max_store_bytes if settings.embedded else None


async def _unowned(broker: Broker) -> set[int]:
    """The partitions for which no engine answers."""
    found = await broker.ask_all(names.ENGINE_PING, lambda answers: not _without(answers), ANSWERS_S_MAX)
    return _without(found)


def _without(answers: list[bytes]) -> set[int]:
    return set(range(PARTITIONS)).difference(*(orjson.loads(answer)["partitions"] for answer in answers))


def _ranges(numbers: set[int]) -> str:
    """`0-3, 7`."""
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True))
