"""The events of a live stream of log lines or chunks."""

from __future__ import annotations

import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.views import ChunkView, LogLineView


class StreamEnd(Exception):
    """The end of a live stream: nothing more comes."""


class _Chunk(Struct, frozen=True):
    step_id: str
    attempt: int
    data: Raw | UnsetType = UNSET
    count: int = 0
    delivery: int = 1


def line(message: httpx2.ServerSentEvent) -> LogLineView | None:
    """The line of an event; None for an event without one. Raises StreamEnd."""
    match message.event:
        case "log":
            return msgspec.json.decode(message.data, type=LogLineView)
        case "end":
            raise StreamEnd
        case _:
            return None


def chunk(message: httpx2.ServerSentEvent) -> ChunkView | None:
    """The chunk of an event, or how many were dropped; None for an event without either. Raises
    StreamEnd."""
    match message.event:
        case "chunk" | "dropped":
            found = msgspec.json.decode(message.data, type=_Chunk)
            # The place of what was dropped is that of the chunk before it.
            seq = int(message.id) if message.id and message.id.isdigit() else 0
            return ChunkView(seq, found.step_id, found.attempt, found.data, found.count, found.delivery)
        case "end":
            raise StreamEnd
        case _:
            return None
