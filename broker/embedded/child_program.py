"""A child program with the interface of a multiprocessing.Process, so that the supervisor handles both alike."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import IO

PR_SET_PDEATHSIG = 1


class ChildProgram:
    """A started program. It gets SIGTERM when the process that started it ends."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        inherited: Collection[int] = (),
    ) -> None:
        """`inherited` are the open files that it gets besides its standard ones."""
        self._process = subprocess.Popen(
            list(arguments),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherited,
            preexec_fn=_apart,
        )
        self.sentinel = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


def _apart() -> None:
    """Terminate with the parent, and ignore Ctrl-C, which the parent handles."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.setpgid(0, 0)
