"""The version of stored documents: events, snapshots, definitions and triggers share one number.

The field `v` of a stored document is the lowest version that its reader must support; the default is 1. A release that
only adds fields which older versions can ignore writes no `v`, and all versions read the document. A document that
older versions would misread gets the new number. They leave it unchanged and raise `NeedsUpgrade`, and it waits for a
process that can read it.

Tasks and leases have no version: only optional fields are added to what workers and front ends exchange.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.engine.errors import NeedsUpgrade

VERSION = 4  # the newest that this code reads


class _Stamp(Struct):
    v: int = 1


_STAMP = msgspec.json.Decoder(_Stamp)


def check(body: bytes) -> None:
    """Raises NeedsUpgrade for a document of a newer version. Bytes that are not a JSON object pass."""
    try:
        needed = _STAMP.decode(body).v
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    check_number(needed)


def check_number(needed: int) -> None:
    """Raises NeedsUpgrade when `needed` is newer than this code supports."""
    if needed > VERSION:
        raise NeedsUpgrade(
            f"the document has format {needed}, of a newer version of the service: this version reads up to {VERSION}"
        )


def stamped(body: bytes, needed: int) -> bytes:
    """The JSON object with `v` as its first field, where a reader finds it first; unchanged for version 1."""
    return body if needed == 1 else b'{"v":%d,%b' % (needed, body[1:])
