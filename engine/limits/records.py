"""The records of a limit's log, in their stored form.

`ask`s come from whoever wants something of the limit: the owners of runs. `decided` comes from the limit's owner only.
Each is one JSON object whose `type` selects the class. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.engine.limits.names import LimitName, OnLimit


class Allowed(Struct, frozen=True, omit_defaults=True):
    """How much a limit allows: `limit` at a time; with `per_s` so many in each span of so many seconds; with `burst` by
    a bucket of so many tokens, one more every per_s/limit seconds."""

    limit: int
    per_s: float | None = None
    burst: int | None = None


class _Record(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    v: int = 1


class Requested(_Record, frozen=True, omit_defaults=True, kw_only=True, tag="limit.requested"):
    """`holder` wants a slot: the id of one acquisition, never used twice. `step_id` is None for a run. `allowed` is
    what the definition of the run says; what was registered last counts. `fair` is the value between whose takers turns
    are taken. A run asks one limit after the other: `more` is how many it asks after this one."""

    name: LimitName
    holder: str
    run_id: str
    allowed: Allowed
    step_id: str | None = None
    priority: int = 0
    fair: str | None = None
    on_limit: OnLimit = OnLimit.QUEUE
    more: int = 0


class Released(_Record, frozen=True, omit_defaults=True, kw_only=True, tag="limit.released"):
    """`holder` has ended, does not wait any more, or does not want what it was granted. `why` is for people."""

    holder: str
    why: str = ""


class Granted(Struct, frozen=True, omit_defaults=True):
    """Who has a slot now, since `at` (s since the epoch, broker time); `order` is the sequence of its request, and
    `more` what that says."""

    holder: str
    run_id: str
    step_id: str | None = None
    at: float = 0.0
    order: int = 0
    more: int = 0


class WaitingRequest(Struct, frozen=True, omit_defaults=True):
    """Who waits still: what its request says, whose sequence is `order`."""

    holder: str
    run_id: str
    order: int
    step_id: str | None = None
    priority: int = 0
    fair: str | None = None
    more: int = 0


class Decided(_Record, frozen=True, omit_defaults=True, kw_only=True, tag="limit.decided"):
    """What the owner decided when it had folded all asks up to the sequence `upto`, at `at` (s since the epoch).

    `allowed` is what counted then. `refused` wait no more, because of `skip` (reason `limit`) or `replace` (reason
    `replaced`); `evicted` are holders whose runs are to be cancelled: they hold until they have ended. `told` is the
    sequence of the last decision whose news all runs have. `turn` is the fair value that was served last.

    A `full` one stands for all before it: `holders` are all holders, `spent` when how many tokens were taken, `missing`
    how many a bucket lacks, `open` the sequence of the oldest request that still waits (0: none), `asked` what the
    newest request says that is allowed (None: as `allowed`).

    `waiting` stands for requests of holders that still wait, whose own records can go then.
    """

    name: LimitName
    upto: int
    at: float
    allowed: Allowed
    granted: tuple[Granted, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    evicted: tuple[str, ...] = ()
    told: int = 0
    turn: str | None = None
    full: bool = False
    holders: tuple[Granted, ...] = ()
    evicting: tuple[str, ...] = ()
    spent: tuple[tuple[float, int], ...] = ()
    missing: float = 0.0
    open: int = 0
    asked: Allowed | None = None
    waiting: tuple[WaitingRequest, ...] = ()


Ask: TypeAlias = Requested | Released
LimitRecord: TypeAlias = Requested | Released | Decided

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[LimitRecord] = msgspec.json.Decoder(LimitRecord)


def encode(record: LimitRecord) -> bytes:
    """The stored form."""
    return _ENCODER.encode(record)


def decode(body: bytes) -> LimitRecord:
    """Raises msgspec.ValidationError or DecodeError for what is no record of a limit."""
    record: LimitRecord = _DECODER.decode(body)
    return record
