"""Brokers that are not the service's own: plain nats-servers from a configuration, alone, as a cluster, or as the hub
of leaves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import orjson

from penstock.broker.embedded.child_program import ChildProgram
from penstock.broker.embedded.server import find_binary
from penstock.broker.nats.connection import connect
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError
from tests.support.service import free_port
from tests.support.waiting import until, until_true

NODES = 3


class Server:
    """One nats-server with this configuration, on a port of its own. Its owner may kill it and start it again on the
    same data."""

    def __init__(self, directory: Path, block: str = "", name: str = "server") -> None:
        self.port, self.name, self._directory = free_port(), name, directory
        self._monitoring_port = free_port()
        self.log = directory / f"{name}.log"
        self._command: ChildProgram | None = None
        self.configure(block)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitoring_url(self) -> str:
        return f"http://127.0.0.1:{self._monitoring_port}"

    def configure(self, block: str) -> None:
        """What its next start is to read."""
        store = self._directory / self.name
        head = f'server_name: "{self.name}"\nlisten: "127.0.0.1:{self.port}"\n'
        head += f'jetstream {{ store_dir: "{store}" }}\nmax_payload: 8MB\n'
        head += f'http: "127.0.0.1:{self._monitoring_port}"\n'
        self._config.write_text(head + block + "\n")

    @property
    def _config(self) -> Path:
        return self._directory / f"{self.name}.conf"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._command = ChildProgram([find_binary(), "-c", str(self._config)], output=log)

    @property
    def running(self) -> bool:
        return self._command is not None and self._command.exitcode is None

    @property
    def listens(self) -> bool:
        assert self._command
        assert self._command.exitcode is None, self.log.read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    async def healthy(self) -> bool:
        """Whether it says that it has caught up with everything: every stream and every consumer it has a copy of."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            try:
                answer = await http.get(f"http://127.0.0.1:{self._monitoring_port}/healthz")
            except httpx2.TransportError:
                return False
        return answer.is_success

    def kill(self) -> None:
        """As by SIGKILL."""
        if self._command is not None:
            self._command.kill()
            self._command.join(5)
        self._command = None


@contextmanager
def server(directory: Path, block: str = "", name: str = "server") -> Iterator[Server]:
    """A server that was started, for the time of the block; `until_true(lambda: server.listens)` waits for it."""
    one = Server(directory, block, name)
    one.start()
    try:
        yield one
    finally:
        one.kill()


class Cluster:
    """Three servers that replicate to each other. Owned by a test, by way of `cluster`."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """Every node's address, comma-separated."""
        return ",".join(node.url for node in self.nodes)

    @property
    def settings(self) -> BrokerSettings:
        return BrokerSettings(url=self.url, replicas=NODES)

    async def formed(self) -> None:
        """Return once the cluster takes requests for streams."""
        await until_true(lambda: all(node.listens for node in self.nodes))
        await until(self._has_leader)

    async def _has_leader(self) -> bool:
        try:
            async with connect(self.settings, "test") as broker:
                await broker.api("INFO", timeout_s=1)
        except PenstockError:
            return False
        return True

    async def leader(self, stream: str) -> Server:
        """The node that leads this stream now."""
        async with connect(self.settings, "test") as broker:
            name = (await broker.api(f"STREAM.INFO.{stream}"))["cluster"]["leader"]
        return next(node for node in self.nodes if node.name == name)

    async def whole(self, stream: str) -> None:
        """Return once every node has all of the stream."""

        async def current() -> bool:
            try:
                async with connect(self.settings, "test") as broker:
                    found = (await broker.api(f"STREAM.INFO.{stream}"))["cluster"]
            except PenstockError:
                return False
            others = found.get("replicas", [])
            return len(others) == NODES - 1 and all(one["current"] and not one.get("offline") for one in others)

        await until(current)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Three nodes that were started, for the time of the block; `formed` waits for them."""
    ports = [free_port() for _ in range(NODES)]
    routes = ", ".join(orjson.dumps(f"nats://127.0.0.1:{port}").decode() for port in ports)
    with ExitStack() as stack:
        nodes = []
        for number, port in enumerate(ports):
            # Clients know all nodes; one that is told other ways to them by the nodes would take these round a line
            # that a test cuts.
            block = f'cluster {{ name: "c", listen: "127.0.0.1:{port}", no_advertise: true, routes: [{routes}] }}'
            nodes.append(stack.enter_context(server(directory, block, f"node-{number}")))
        yield Cluster(nodes)
