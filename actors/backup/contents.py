"""What a backup has, and in which order it is copied, so that the copies fit together though nothing stands still.

The history is the truth, and its copy is its beginning up to some moment. What follows from it is copied before it: it
may be older then, and the events that it does not know are handled again after the restore, from the positions that
were noted before everything else. What it refers to is copied after it: it may be newer then, and has all that the
history needs. What is made anew from the history is not copied: snapshots, queues of tasks, owners.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker import names

FOLLOWS = (
    names.DEAD,
    names.BATCHES,
    names.bucket_stream(names.EVENT_WAITS),
    names.bucket_stream(names.APPROVAL_TOKENS),
    names.bucket_stream(names.STICKY_BINDINGS),
)
MADE_ANEW = (
    names.TASKS,
    names.STICKY,
    names.PROGRESS,
    *map(names.bucket_stream, (names.RUNS, names.ENGINES, names.WORKERS, names.BRIDGE_LEASES)),
)


def in_order(streams: Iterable[str]) -> list[str]:
    """Those of these streams that are copied, in this order. A stream that is not known here is copied, too."""
    copied = sorted(set(streams) - set(MADE_ANEW))
    return sorted(copied, key=_place)


def _place(stream: str) -> int:
    if stream in FOLLOWS:
        return 0
    return 1 if stream == names.HISTORY else 2
