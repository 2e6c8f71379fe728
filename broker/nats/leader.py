"""Reads from the leader of a stream, which has everything that was acknowledged. Other copies may lag behind it."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from msgspec import Struct

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import ApiError, Code
from penstock.engine.errors import Unavailable

REMOVED = (b"KV-Operation:", b"Nats-Marker-Reason:")


class Stored(Struct, frozen=True):
    """One message of a stream. `at` is the time at which the broker stored it, in s since the epoch; `removed` marks a
    deleted key.

    `headers` are raw, perhaps with the broker's own at the end.
    """

    subject: str
    seq: int
    at: float
    data: bytes
    removed: bool = False
    headers: bytes = b""


class Leaders:
    """Owned by a reader, for the life of its connection. Caches which streams have copies."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._copied: dict[str, bool] = {}
        broker.on_reconnect.append(self._forget)

    def close(self) -> None:
        self._broker.on_reconnect.remove(self._forget)

    async def needed(self, stream: str) -> bool:
        """Whether a copy that is not up to date may answer. The broker is asked once for each stream, and never if it
        is alone."""
        if not self._broker.clustered:
            return False
        if stream not in self._copied:
            self._copied[stream] = (await self._ask(f"STREAM.INFO.{stream}"))["config"]["num_replicas"] > 1
        return self._copied[stream]

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The last message of a subject (or wildcard), or None."""
        return await self._get(stream, {"last_by_subj": subject})

    async def next(self, stream: str, subject: str, from_seq: int) -> Stored | None:
        """The first message of a subject (or wildcard) from this sequence on, or None."""
        return await self._get(stream, {"seq": from_seq, "next_by_subj": subject})

    async def at(self, stream: str, seq: int) -> Stored | None:
        """The message with this sequence, or None."""
        return await self._get(stream, {"seq": seq})

    async def _get(self, stream: str, request: dict[str, Any]) -> Stored | None:
        try:
            return _stored((await self._broker.api(f"STREAM.MSG.GET.{stream}", request))["message"])
        except ApiError as error:
            if error.err_code == Code.MESSAGE_NOT_FOUND:
                return None
            raise Unavailable(f"broker: a read of {stream} was refused: {error}") from error

    async def _ask(self, verb: str) -> dict[str, Any]:
        try:
            return await self._broker.api(verb)
        except ApiError as error:
            raise Unavailable(f"broker: {verb} was refused: {error}") from error

    async def _forget(self) -> None:
        """Clear the cache after a reconnect: another node answers now."""
        self._copied.clear()


def _stored(message: dict[str, Any]) -> Stored:
    headers = base64.b64decode(message.get("hdrs", ""))
    at = datetime.fromisoformat(message["time"][:26].rstrip("Z") + "+00:00").timestamp()
    removed = any(name in headers for name in REMOVED)
    return Stored(message["subject"], message["seq"], at, base64.b64decode(message.get("data", "")), removed, headers)
