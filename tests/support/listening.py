"""What the kernel says about TCP: at which addresses of this machine somebody listens, and where processes have
connections to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

LISTEN = "0A"


def listening(port: int) -> set[str]:
    """IPv4 addresses; a socket for both families counts as 0.0.0.0."""
    found = set()
    for row in _sockets():
        host, _, hexadecimal = row[1].partition(":")
        if row[3] == LISTEN and int(hexadecimal, 16) == port:
            found.add(socket.inet_ntoa(bytes.fromhex(host)[::-1]) if len(host) == 8 else "0.0.0.0")
    return found


def connected(pids: Iterable[int]) -> set[int]:
    """The ports, of whichever address, to which these processes have connections, or try to."""
    held = {name for pid in pids for name in _files(pid)}
    return {
        int(row[2].rpartition(":")[2], 16) for row in _sockets() if row[3] != LISTEN and f"socket:[{row[9]}]" in held
    }


def _sockets() -> Iterator[list[str]]:
    """Of each: number, its own address, the other's, state, …, and as the tenth its inode."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        yield from (line.split() for line in Path(name).read_text().splitlines()[1:])


def _files(pid: int) -> Iterator[str]:
    """What the process has open."""
    with suppress(FileNotFoundError):  # it has ended
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")
