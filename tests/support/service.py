"""The whole service as users start it: `penstock serve` with its child processes, on ports and a data directory of its
own."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import orjson

from penstock.client import Client
from penstock.config.keys import KEYS
from penstock.engine.errors import Unavailable

READY_S_MAX = 30.0
RESTART_S_MAX = 30.0
STOP_S_MAX = 20.0  # the service promises 15
LEFT_S_MAX = 2.0
POLL_S = 0.02
T = TypeVar("T")
PENSTOCK = str(Path(sys.executable).with_name("penstock"))

# Below the ports that the system hands out by itself, so that no connection takes one between the choice and its use.
PORTS = range(10_000, 32_000)


class Service:
    """Owned by a test. `settings` are keys as in `penstock config`: `Service(tmp_path, shards=2, fsync="always")`.

    It may be stopped, or killed altogether, and started again on the same data. As a context manager it leaves nothing
    running. `environ` is for settings that must not stand among the flags, `penstock` how its command is called.
    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str] = {},
        penstock: Sequence[str] = (PENSTOCK,),
        **settings: object,
    ) -> None:
        self.directory = directory
        self.log = directory / "serve.log"
        self._http_port, self._broker_port = free_port(), free_port()
        self._settings = {
            "listen": f"127.0.0.1:{self._http_port}",
            "broker_port": self._broker_port,
            "data_dir": directory / "data",
            "log_format": "json",
            **settings,
        }
        self._environ = {**clean_environ(), **environ}
        self._penstock = penstock
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http_port}"

    @property
    def http_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._http_port

    @property
    def broker_url(self) -> str:
        return f"nats://127.0.0.1:{self._broker_port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a process that uses this service: a worker, the command line."""
        return {**clean_environ(), "SERVICE_URL": self.url, "SERVICE_BROKER_URL": self.broker_url}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Return once /ready says yes."""
        self.launch()
        try:
            self.await_ready()
        except BaseException:
            self.kill_all()
            raise
        return self

    def launch(self) -> None:
        """Have its first process started, and wait for nothing."""
        assert self._process is None, "it is running"
        self.directory.mkdir(parents=True, exist_ok=True)
        flags = [f"{KEYS[name].flag}={value}" for name, value in self._settings.items()]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._penstock, "serve", *flags],
                cwd=self.directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        """End it as an operator would; returns the exit code. What the service left behind is killed, and an error."""
        if self._process is None:
            return 0
        process, known = self._process, self._all_pids()
        process.terminate()
        try:
            code = process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"the service did not stop within {STOP_S_MAX:g} s\n{self.last_words()}") from None
        self._process = None
        left = _still_alive(known, LEFT_S_MAX)
        _kill(left)
        assert not left, f"the service left processes behind: {left}\n{self.last_words()}"
        return code

    def pids(self) -> dict[str, int]:
        """The children that are alive, by their names: broker, shard-0, services, http."""
        started = {
            str(line["name"]): int(str(line["child"]))
            for line in self.log_lines()
            if line.get("event") == "process_started"
        }
        alive = set(_descendants(self.pid))
        return {name: pid for name, pid in started.items() if pid in alive}

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        assert self._process is not None, "it is not running"
        return self._process.pid

    def http_worker_pids(self) -> list[int]:
        """The processes that answer requests; their parent is the child `http`."""
        return _children(self.pids()["http"])

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the child of this name; returns the process id that it had."""
        pid = self.pids()[name]
        os.kill(pid, number)
        return pid

    def await_restart(self, name: str, former: int) -> int:
        """Return the process id of the child that took the place of `former`."""

        def successor() -> int | None:
            pid = self.pids().get(name)
            return None if pid == former else pid

        return _await(successor, RESTART_S_MAX, lambda: f"{name} was not started again\n{self.last_words()}")

    def await_ready(self) -> None:
        """Return once every part of the service says that it is there."""
        with self.client() as client:
            _await(
                lambda: self._is_ready(client), READY_S_MAX, lambda: f"the service is not ready\n{self.last_words()}"
            )

    def kill_all(self) -> None:
        """What a power cut does to it: every process is gone at once, none has a chance to finish."""
        if self._process is None:
            return
        os.kill(self._process.pid, signal.SIGSTOP)  # so that it starts nothing while its children die
        _kill([*self._all_pids(), self._process.pid])
        self._process.wait()
        self._process = None

    def client(self) -> Client:
        """A new HTTP client; its caller closes it."""
        return Client(self.url)

    def penstock(self, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run the command line against this service, in a process of its own."""
        return subprocess.run(
            [PENSTOCK, *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def log_lines(self) -> list[dict[str, object]]:
        """What it has logged since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return [orjson.loads(line) for line in log if line.startswith(b"{") and line.endswith(b"\n")]

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def _all_pids(self) -> list[int]:
        return _descendants(self.pid)

    def _is_ready(self, client: Client) -> bool | None:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the service ended with code {code}\n{self.last_words()}"
        try:
            client.ready()
        except Unavailable:
            return None
        return True


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def clean_environ() -> dict[str, str]:
    """No settings but those given: neither the environment's nor those of a file that lies about, and none of this
    pytest, for one that is started."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SERVICE_", "PYTEST_"))},
        "SERVICE_CONFIG": "",
    }


def _await(find: Callable[[], T | None], seconds_max: float, problem: Callable[[], str]) -> T:
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            return found
        time.sleep(POLL_S)
    raise AssertionError(problem())


def _parents() -> Mapping[int, int]:
    """Of every process of this machine that is no zombie: its parent."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _parent(int(entry))) is not None:
            found[int(entry)] = parent
    return found


def _parent(pid: int) -> int | None:
    """The parent of a process; None when there is no such process, or only its exit code is left."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(parent)


def _children(pid: int) -> list[int]:
    return [child for child, parent in _parents().items() if parent == pid]


def _descendants(pid: int) -> list[int]:
    parents = _parents()
    found, wave = list[int](), [pid]
    while wave := [child for child, parent in parents.items() if parent in wave]:
        found += wave
    return found


def _still_alive(pids: list[int], seconds_max: float) -> list[int]:
    """Those that do not end by themselves; the interpreter's own resource tracker ends a moment after its parent."""
    deadline = time.monotonic() + seconds_max
    while (left := [pid for pid in pids if _is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def _is_alive(pid: int) -> bool:
    return _parent(pid) is not None


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
