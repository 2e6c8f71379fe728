"""The data directory of the embedded broker: locked by one supervisor, still the one that the broker was started in,
and writable."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from penstock.config.limits import MIB
from penstock.engine.errors import Conflict, Unavailable

STREAMS = "jetstream"
LOCK = "lock"
PROBE = "write-probe"
RESTORING = "restoring"  # is there from before the first stream of a backup is made until all is done
ROOM_BYTES = 4 * MIB  # with less, a restarted broker would soon stop again


class DataDir:
    """Owned by the embedded broker. The lock is held from `take` to `release`, or until the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._device: int | None = None
        self._streams: tuple[int, int] | None = None
        self._restoring = False

    @property
    def empty(self) -> bool:
        """Whether no broker has ever stored anything here."""
        return not (self.path / STREAMS).exists()

    @property
    def stored_bytes(self) -> int:
        """The size of all files of the streams."""
        return sum(map(_size, (self.path / STREAMS).rglob("*")))

    def take(self) -> None:
        """Make the directory and lock it, again if it was removed meanwhile. Raises Conflict, Unavailable."""
        try:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            self._renew_lock()
        except OSError as error:
            raise Unavailable(f"the data directory {self.path} cannot be used: {error.strerror}") from error
        self._device = self.path.stat().st_dev
        if (self.path / RESTORING).exists() and not self._restoring:
            self.release()
            raise Conflict(f"the data directory {self.path} has a part of a backup only: remove it, and restore again")

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Take the directory, which must be empty. If the block ends with an error after the first stream was made, or
        never ends, nothing starts with the directory any more. Raises Conflict, Unavailable."""
        self.take()
        if not self.empty:
            self.release()
            raise Conflict(f"the data directory {self.path} is in use: a backup is restored to an empty one")
        mark = self.path / RESTORING
        self._restoring = True
        _sync_file(mark)
        try:
            yield
        except BaseException:
            if self.empty:
                mark.unlink()
            raise
        mark.unlink()

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def _renew_lock(self) -> None:
        """The server does not lock its store: two servers on one store would both run, and destroy it."""
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if self._lock is not None and os.path.sameopenfile(handle, self._lock):
            os.close(handle)
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise Conflict(f"the data directory {self.path} is in use by another process") from error
        self.release()
        self._lock = handle

    def remember(self) -> None:
        """Record the directory in which the broker was just started."""
        self._streams = self._identity()

    def gone(self) -> bool:
        """Whether the broker's files are gone: removed, moved away, or unmounted while it runs."""
        return self._streams is not None and self._streams != self._identity()

    def give_up(self) -> None:
        """Accept that the former files do not come back: the next broker starts with what it finds."""
        self._streams = None

    def check(self) -> None:
        """Raises Unavailable, with the reason, when no broker can be started here now."""
        problem = f"{self.path / STREAMS} was removed" if self.gone() else self.problem()
        if problem:
            raise Unavailable(problem)

    def _identity(self) -> tuple[int, int] | None:
        with suppress(OSError):
            found = (self.path / STREAMS).stat()
            return found.st_dev, found.st_ino
        return None

    def misplaced(self) -> str | None:
        """A sentence when the path leads to another file system than before, else None. A broker would start empty
        there, and its former data would be hidden."""
        if self._device is None or self._device == _device(self.path):
            return None
        return f"the data directory {self.path} is on another file system than before: is it not mounted?"

    def problem(self) -> str | None:
        """Why nothing can be stored here now; None when it can. Writes some MiB to find out."""
        if misplaced := self.misplaced():
            return misplaced
        try:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            _write(self.path / PROBE)
        except OSError as error:
            return f"the data directory {self.path} cannot be written to: {error.strerror}"
        return None


def _device(path: Path) -> int | None:
    """The device of the directory, or of its nearest parent that exists."""
    for one in (path, *path.parents):
        with suppress(OSError):
            return one.stat().st_dev
    return None


def _size(path: Path) -> int:
    """In bytes; 0 for what is no file, or is gone."""
    with suppress(OSError):
        found = path.stat()
        return found.st_size if S_ISREG(found.st_mode) else 0
    return 0


def _sync_file(path: Path) -> None:
    """Make an empty file that is there also after a loss of power."""
    for place, flags in ((path, os.O_WRONLY | os.O_CREAT), (path.parent, os.O_RDONLY)):
        handle = os.open(place, flags, 0o600)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(path: Path) -> None:
    """Write the bytes to the disk: a file system may accept a write first and fail when it stores it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = memoryview(bytes(ROOM_BYTES))
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)
