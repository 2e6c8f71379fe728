"""Front ends under gunicorn, each a process of its own over the broker of a test module."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2

from penstock.config.settings import Address, BrokerSettings, HttpSettings, Settings, to_environ
from tests.support.service import free_port

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_S_MAX = 15.0
START_S_MAX = 20.0


class FrontEnd:
    """One gunicorn with one worker process; `options` are gunicorn's own, and go before its configuration."""

    def __init__(self, broker: BrokerSettings, token: str | None, *options: str) -> None:
        listen = Address("127.0.0.1", free_port())
        self.url, self.port = f"http://{listen}", listen.port
        settings = Settings(broker=broker, http=HttpSettings(listen=listen, workers=1, bridge_token=token))
        command = [sys.executable, "-m", "gunicorn", "-c", "python:penstock.config.gunicorn", *options]
        command.append("penstock.http.app:application")
        self._process = subprocess.Popen(command, env={**os.environ, **to_environ(settings)}, start_new_session=True)

    @property
    def pid(self) -> int:
        """Of gunicorn itself."""
        return self._process.pid

    @property
    def memory(self) -> int:
        """Bytes that its processes have in memory."""
        main = self._process.pid
        pids = [main, *Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES for pid in pids)

    @property
    def memory_most(self) -> int:
        """As `memory`, at the time when each had most."""
        main = self._process.pid
        pids = [main, *Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in pids)
        return sum(int(kib) * 1024 for kib in re.findall(r"VmHWM:\s*(\d+) kB", status))

    def await_start(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        with httpx2.Client(base_url=self.url, trust_env=False) as client:
            while time.monotonic() < deadline:
                with suppress(httpx2.TransportError):
                    client.get("/nowhere")
                    return
                time.sleep(0.02)
        raise AssertionError(f"no answer from {self.url}")

    def send_signal(self, number: int) -> None:
        """To every process of it."""
        os.killpg(self._process.pid, number)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_S_MAX)

    def kill(self) -> None:
        """Every process of it, as by a power cut."""
        os.killpg(self._process.pid, 9)
        self._process.wait(STOP_S_MAX)


@contextmanager
def front_ends(broker: BrokerSettings, count: int, token: str | None) -> Iterator[list[FrontEnd]]:
    """Front ends that answer; those that are left at the end of the block are stopped."""
    with ExitStack() as stack:
        started = [FrontEnd(broker, token) for _ in range(count)]
        for one in started:
            stack.callback(one.stop)
        for one in started:
            one.await_start()
        yield started
