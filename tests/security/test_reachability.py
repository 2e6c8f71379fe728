"""Who reaches the embedded broker: this host by its loopback address and nobody else, unless it is a leaf; and then
with credentials.

And who reaches the files of the service: its own user.
"""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import structlog

from penstock.actors.index.file import index_path
from penstock.actors.index.follower import exclusively
from penstock.broker.embedded.server import EmbeddedBroker, monitor_port
from penstock.broker.nats.connection import connect
from penstock.cli.commands.serve import _warn_if_open
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Denied
from tests.support.listening import listening
from tests.support.service import free_port
from tests.support.waiting import until_true

HUB = ("nats-leaf://127.0.0.1:1",)
GUARDED = {"user": "ada", "password": "secret"}


def own_addresses() -> list[str]:
    """Addresses of this machine beside 127.0.0.1: others of the loopback, and the one that it goes out by, if it has a
    network."""
    found = ["127.0.0.2", "127.8.8.8", "::1"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            found.append(probe.getsockname()[0])
        except OSError:
            pass
    return [address for address in found if _is_own(address)]


def _is_own(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def reachable(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 5).close()
    except OSError:
        return False
    return True


@contextmanager
def embedded(directory: Path, **more: object) -> Iterator[BrokerSettings]:
    settings = msgspec.convert({"port": free_port(), "data_dir": str(directory), **more}, BrokerSettings)
    broker = EmbeddedBroker(settings)
    try:
        broker.start()
        yield settings
    finally:
        broker.stop()


def test_by_default_no_other_address_of_this_machine_leads_to_it(tmp_path: Path) -> None:
    with embedded(tmp_path, monitor_port=free_port()) as settings:
        for port in (settings.port, settings.monitor_port):
            assert {"127.0.0.1"} == listening(port)
            assert {"127.0.0.1": True, **dict.fromkeys(own_addresses(), False)} == {
                address: reachable(address, port) for address in ("127.0.0.1", *own_addresses())
            }
    assert "127.0.0.2" in own_addresses()


async def test_as_a_leaf_it_is_reached_from_everywhere_with_the_credentials_alone(tmp_path: Path) -> None:
    with embedded(tmp_path, leaf_remotes=HUB, **GUARDED) as settings:
        elsewhere = msgspec.structs.replace(settings, url=f"nats://127.0.0.2:{settings.port}")
        async with connect(elsewhere, "test") as broker:
            assert broker.connected
        for wrong in (
            {"password": "other"},
            {"user": None, "password": None},
            {"user": "eve"},
            {"token": "secret", "user": None},
        ):
            with pytest.raises(Denied):
                async with connect(msgspec.structs.replace(elsewhere, **wrong), "test"):
                    raise AssertionError("let in")


async def test_the_monitoring_of_a_leaf_stays_at_home(tmp_path: Path) -> None:
    with embedded(tmp_path, leaf_remotes=HUB, **GUARDED) as settings:
        await until_true(lambda: monitor_port(settings) is not None)
        port = monitor_port(settings)
        assert port
        assert {"127.0.0.1"} == listening(port)
        assert not [address for address in own_addresses() if reachable(address, port)]


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (BrokerSettings(), False),
        (BrokerSettings(leaf_remotes=HUB), True),
        (BrokerSettings(leaf_remotes=HUB, user="ada", password="secret"), False),
        (BrokerSettings(leaf_remotes=HUB, token="secret"), False),
    ],
    ids=["at home", "leaf without credentials", "leaf with a user", "leaf with a token"],
)
def test_who_opens_it_to_everybody_is_warned(settings: BrokerSettings, warned: bool) -> None:
    with structlog.testing.capture_logs() as lines:
        _warn_if_open(settings)
    assert (["broker_open_to_all"] if warned else []) == [line["event"] for line in lines]
    assert "secret" not in str(lines)


def test_the_run_index_is_for_the_services_user_alone(tmp_path: Path) -> None:
    path = index_path(str(tmp_path / "data"))
    with exclusively(path):
        assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)
