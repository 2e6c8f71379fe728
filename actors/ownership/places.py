"""Places of shards on this machine: files of the data directory, each locked by the process that has the place.

The system releases a lock when the process that holds it ends, however it ends. So the process that gets the lock knows
that the place's former shard is dead, and need not wait for the end of its lease.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from penstock.config.logging import get_logger
from penstock.config.process.boot import name_since_boot

FOLDER = "places"
PLACES_MAX = 256

log = get_logger()


@contextmanager
def occupied(data_dir: str) -> Iterator[str]:
    """Hold the first free place for the time of the block; yields its name.

    If the directory cannot be written to, the name is new each time: then former shards are not known to be dead.
    """
    found = _first(Path(data_dir).absolute() / FOLDER)
    if found is None:
        yield uuid4().hex
        return
    try:
        yield name_since_boot(found)
    finally:
        os.close(found)


def free_places(data_dir: str) -> frozenset[str]:
    """The names of the places that no process holds now: their former shards are dead."""
    found = set()
    for path in (Path(data_dir).absolute() / FOLDER).glob("*"):
        try:
            handle = _locked(path)
        except OSError:
            continue
        if handle is not None:
            found.add(name_since_boot(handle))
            os.close(handle)
    return frozenset(found)


def _first(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(PLACES_MAX):
            handle = _locked(folder / str(number))
            if handle is not None:
                return handle
    except OSError as error:
        log.warning("data_dir_not_writable", folder=str(folder), error=str(error))
    return None


def _locked(path: Path) -> int | None:
    """The open file, locked; None when another process holds the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
