"""Chunks that a step streams: any JSON each, such as the tokens of a language model.

Subject: `stream.<run_id>.<step_id>`. Any client may write such messages; what cannot be read is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

_NOTHING: list[Raw] = []


class ChunkBatch(Struct, frozen=True, omit_defaults=True):
    """The body of a message: chunks of one attempt. `dropped`: so many more were dropped before them."""

    chunks: list[Raw] = _NOTHING
    attempt: int = 1
    worker_id: str | None = None
    dropped: int = 0
    delivery: int = 1


_BATCH = msgspec.json.Decoder(ChunkBatch)
_ENCODER = msgspec.json.Encoder()


def batch(
    chunks: Sequence[bytes], attempt: int, worker_id: str | None, dropped: int = 0, *, delivery: int = 1
) -> bytes:
    """The body of a message with these chunks, at most ENTRIES_MAX. `delivery` is the number of the task's delivery."""
    return _ENCODER.encode(ChunkBatch([Raw(one) for one in chunks], attempt, worker_id, dropped, delivery))


def read(body: bytes) -> ChunkBatch | None:
    """The batch in a message; None for what is none."""
    try:
        body.decode()
        return _BATCH.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
