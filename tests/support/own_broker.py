"""A broker of one test's own, which may be stopped, killed and started again on the same data and port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.broker.embedded.server import EmbeddedBroker
from penstock.config.settings import BrokerSettings
from tests.conftest import free_port


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

    def restart(self) -> None:
        self.stop()
        self.start()


@contextmanager
def own_broker(data_dir: Path) -> Iterator[OwnBroker]:
    broker = OwnBroker(data_dir)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
