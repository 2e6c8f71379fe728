"""Which limit is meant: its kind, scope and key, and the id that these have in the log."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import sha256

from msgspec import Struct

IDS_CACHED = 4096


class LimitKind(StrEnum):
    """What is counted. Limits of one scope and key, but of different kinds, have nothing to do with each other.

    RUNS: runs that go on. EXECUTIONS: executions of steps that are out. RATE: what begins in a time.
    """

    RUNS = "runs"
    EXECUTIONS = "executions"
    RATE = "rate"


class OnLimit(StrEnum):
    """What becomes of a run that finds no free slot: it waits; it ends as cancelled; or it replaces who waits, or else
    the oldest holder."""

    QUEUE = "queue"
    SKIP = "skip"
    REPLACE = "replace"


class LimitName(Struct, frozen=True, omit_defaults=True):
    """`key` is the text of the key's value; None for a limit without one."""

    kind: LimitKind
    scope: str
    key: str | None = None

    @property
    def id(self) -> str:
        return limit_id(self.kind, self.scope, self.key)


@lru_cache(IDS_CACHED)
def limit_id(kind: LimitKind, scope: str, key: str | None) -> str:
    """32 hex digits: no two limits share them."""
    parts = [kind.value, scope] if key is None else [kind.value, scope, key]
    return sha256("\0".join(f"{len(part.encode())}:{part}" for part in parts).encode()).hexdigest()[:32]
