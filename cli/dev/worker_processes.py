"""The processes with the user's code: one serves, one is ready to take over, and others finish what they have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from threading import Thread

from penstock.cli.dev.messages import DECODER, Message

STOP_S_MAX = 15.0


class WorkerProcess:
    """One run of worker_program.py. What it says is passed to `said`, in another thread, and None at its end."""

    def __init__(
        self, app: Path, environ: Mapping[str, str], said: Callable[[WorkerProcess, Message | None], None]
    ) -> None:
        self._socket, theirs = socket.socketpair()
        told = (str(app), str(theirs.fileno()), str(os.getpid()))
        with theirs:
            # Started by the thread that lives as long as this process: the end of that thread ends it.
            self.program = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.cli.dev.worker_program", *told],
                env=environ,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the command, which decides the order
            )
        Thread(target=self._read, args=(said,), daemon=True, name="worker-messages").start()

    def begin(self) -> None:
        """Let it load the code."""
        with suppress(OSError):  # it has ended, which is said
            self._socket.sendall(b"g")

    def await_end(self) -> None:
        """For at most STOP_S_MAX; then it is killed."""
        try:
            self.program.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.wait()

    def _read(self, said: Callable[[WorkerProcess, Message | None], None]) -> None:
        # A connection that is reset is as good as one that has ended.
        with self._socket.makefile("rb") as lines, suppress(ConnectionResetError):
            for line in lines:
                said(self, DECODER.decode(line))
        said(self, None)


class WorkerProcesses:
    """Owned by the command, and used by its main thread. `serving` takes tasks; `loading` is to follow it."""

    def __init__(
        self, app: Path, environ: Mapping[str, str], said: Callable[[WorkerProcess, Message | None], None]
    ) -> None:
        self._app, self._environ, self._said = app, environ, said
        self._spare: WorkerProcess | None = None
        self._leaving: list[WorkerProcess] = []
        self.serving: WorkerProcess | None = None
        self.loading: WorkerProcess | None = None

    def load(self) -> None:
        """Let a process load the code as it is now, in place of one that does so already."""
        if self.loading is not None:
            self.loading.program.kill()
            self._leaving.append(self.loading)
        self.loading, self._spare = self._spare or self._new(), None
        self.loading.begin()

    def prepare(self) -> None:
        """Have a process ready for the next `load`. Not while one loads: the two would share the processors."""
        self._spare = self._spare or self._new()

    def take_over(self) -> None:
        """The one that has loaded serves; the one before it takes no more tasks, and finishes those that it has."""
        assert self.loading is not None
        if self.serving is not None:
            self.serving.program.terminate()
            self._leaving.append(self.serving)
        self.serving, self.loading = self.loading, None

    def give_up(self) -> None:
        """The one that loads has said why it cannot; it ends by itself."""
        assert self.loading is not None
        self._leaving.append(self.loading)
        self.loading = None

    def ended(self, process: WorkerProcess) -> bool:
        """Forget a process that has ended; returns whether it was serving, or was to serve."""
        process.await_end()
        if process in self._leaving:
            self._leaving.remove(process)
            return False
        expected = process in (self.serving, self.loading)
        self._spare = None if process is self._spare else self._spare
        self.serving = None if process is self.serving else self.serving
        self.loading = None if process is self.loading else self.loading
        return expected

    def stop(self) -> None:
        """End all of them; tasks in hand have the time that workers give them."""
        known = self._known()
        for process in known:
            process.program.terminate()
        for process in known:
            process.await_end()

    def kill(self) -> None:
        """End all of them at once; tasks in hand are lost."""
        for process in self._known():
            process.program.kill()

    def _known(self) -> list[WorkerProcess]:
        return [process for process in (self.serving, self.loading, self._spare, *self._leaving) if process]

    def _new(self) -> WorkerProcess:
        return WorkerProcess(self._app, self._environ, self._said)


def forget_compiled(paths: set[Path]) -> None:
    """Remove what Python has compiled of these files: it takes a change within the same second for none."""
    for path in paths:
        if path.suffix == ".py":
            Path(cache_from_source(path)).unlink(missing_ok=True)
