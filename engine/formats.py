"""The version of what is stored: of events, snapshots, definitions and triggers there is one number.

Each stored document may say with `v` which version its reader must know at least; without, that is 1. So what a release
adds that its predecessors can pass by (a field of their default, above all) needs no `v`, and is read by all. What they
would misread is written with the new number, and they leave it alone: `NeedsUpgrade` says that it waits for a process
that can read it.

Tasks and leases carry none: what workers and front ends hand each other only ever grows by fields that may be left out.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.engine.errors import NeedsUpgrade

VERSION = 1  # the newest that this code reads


class _Stamp(Struct):
    v: int = 1


_STAMP = msgspec.json.Decoder(_Stamp)


def check(body: bytes) -> None:
    """Raises NeedsUpgrade for a document that is meant for a newer version. What is no document at all passes."""
    try:
        needed = _STAMP.decode(body).v
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    check_number(needed)


def check_number(needed: int) -> None:
    """Raises NeedsUpgrade when that version is newer than this code."""
    if needed > VERSION:
        raise NeedsUpgrade(
            f"this is of format {needed}, of a newer version of the service: this one knows formats up to {VERSION}"
        )


def stamped(body: bytes, needed: int) -> bytes:
    """The JSON object with its `v` in front, where a reader finds it first; as it is for version 1."""
    return body if needed == 1 else b'{"v":%d,%b' % (needed, body[1:])
