"""A disk that takes no bytes, for processes of one's own: their files may grow no further, as by a quota. It needs no
rights."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def limit(pids: Iterable[int], size: int) -> None:
    """From now on no write of these processes may lead beyond so many bytes of a file."""
    for pid in pids:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


@contextmanager
def limited(pids: Iterable[int], size: int) -> Iterator[None]:
    """For the time of the block. Processes that are started by these meanwhile inherit the limit."""
    pids = list(pids)
    limit(pids, size)
    try:
        yield
    finally:
        limit(pids, resource.RLIM_INFINITY)
