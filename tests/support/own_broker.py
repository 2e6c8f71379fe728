"""A broker of one test's own, which may be stopped, killed and started again on the same data and port."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.broker.embedded.server import EmbeddedBroker
from penstock.config.settings import BrokerSettings
from tests.support.service import free_port
from tests.support.waiting import until_true


class OwnBroker:
    """Owned by a test, by way of `own_broker`."""

    def __init__(self, data_dir: Path) -> None:
        embedded = BrokerSettings(port=free_port(), data_dir=str(data_dir))
        self.settings = msgspec.structs.replace(embedded, url=f"nats://127.0.0.1:{embedded.port}")
        self._server: EmbeddedBroker | None = None

    @property
    def pid(self) -> int:
        assert self._server
        assert self._server.command
        return self._server.command.pid

    def start(self) -> None:
        self._server = EmbeddedBroker(self.settings)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None

    def kill(self) -> None:
        """As by SIGKILL; its lock goes too."""
        assert self._server
        assert self._server.command
        self._server.command.kill()
        self.stop()

    async def freeze(self) -> None:
        """As by SIGSTOP. Return when it does nothing any more: its threads stop one after the other."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        await until_true(lambda: all(_is_stopped(stat) for stat in Path(f"/proc/{pid}/task").glob("*/stat")))

    def go_on(self) -> None:
        """End what `freeze` has begun."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()


def _is_stopped(stat: Path) -> bool:
    """The state stands behind the name, which is in parentheses. A thread that has ended does nothing either."""
    try:
        return stat.read_text().rpartition(") ")[2].startswith("T")
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def own_broker(data_dir: Path) -> Iterator[OwnBroker]:
    broker = OwnBroker(data_dir)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
