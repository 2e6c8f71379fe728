"""The embedded broker as a child process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest

from penstock.broker.embedded import server
from penstock.broker.embedded.data_dir import DataDir
from penstock.broker.embedded.memory_limit import soft_limit
from penstock.broker.embedded.server import EmbeddedBroker, find_binary, render
from penstock.broker.nats.connection import connect
from penstock.broker.store import open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import GIB, MIB
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Denied, Unavailable
from tests.support.own_broker import own_broker
from tests.support.service import free_port

PARENT = """
import sys, time
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.config.settings import BrokerSettings
EmbeddedBroker(BrokerSettings(port=int(sys.argv[1]), data_dir=sys.argv[2])).start()
print("ready", flush=True)
time.sleep(60)
"""
HOSTILE = [
    'a"b',
    "back\\slash",
    "$HOME",
    "#comment",
    "{ listen: 1 }",
    "new\nline",
    "tab\there",
    "ünïcode",
    "sp ace",
    "'",
    "; port: 1",
]


@pytest.fixture
def settings(tmp_path: Path) -> BrokerSettings:
    return BrokerSettings(port=free_port(), data_dir=str(tmp_path / "data"))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def problems(config: Path) -> str:
    """What the server itself says of a configuration file; nothing when it is fine."""
    checked = subprocess.run([find_binary(), "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    return "" if checked.returncode == 0 else checked.stderr


def test_it_takes_connections_when_start_returns_and_none_after_stop(settings: BrokerSettings) -> None:
    broker = EmbeddedBroker(settings)
    broker.start()
    assert is_listening(settings.port)
    broker.stop()
    assert not is_listening(settings.port)


def test_stopping_twice_is_fine(settings: BrokerSettings) -> None:
    broker = EmbeddedBroker(settings)
    broker.stop()
    broker.stop()


@pytest.mark.parametrize(("field", "whose"), [("port", "the broker's port"), ("monitor_port", "the monitoring port")])
def test_a_port_in_use_is_a_conflict_that_names_it(
    settings: BrokerSettings, taken_port: int, field: str, whose: str
) -> None:
    broker = EmbeddedBroker(msgspec.structs.replace(settings, **{field: taken_port}))
    with pytest.raises(Conflict, match=f"^{whose} {taken_port} on 127.0.0.1 is in use"):
        broker.start()
    broker.stop()


def test_a_second_one_on_the_same_data_is_refused_until_the_first_stops(settings: BrokerSettings) -> None:
    first = EmbeddedBroker(settings)
    first.start()
    with pytest.raises(Conflict, match="in use by another process"):
        EmbeddedBroker(msgspec.structs.replace(settings, port=free_port()))
    first.stop()
    second = EmbeddedBroker(settings)
    second.start()
    second.stop()


def test_a_server_that_cannot_run_is_reported_with_its_last_log_lines(settings: BrokerSettings) -> None:
    broker = EmbeddedBroker(settings)
    (Path(settings.data_dir) / "jetstream").write_text("not a directory")
    with pytest.raises(Unavailable, match="ended at once"):
        broker.start()
    broker.stop()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_path_breaks_out_of_its_place(tmp_path: Path, name: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(render(BrokerSettings(data_dir=str(tmp_path / name))))
    assert "" == problems(config)


@pytest.mark.parametrize("name", HOSTILE)
async def test_data_lies_under_the_very_path_that_was_given(tmp_path: Path, name: str) -> None:
    with own_broker(tmp_path / name) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
    assert has_streams(tmp_path / name)


def test_leaf_credentials_and_addresses_are_quoted(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    remotes = ("nats-leaf://user:p%22w@hub1:7422", "nats-leaf://hub2:7422")
    (tmp_path / 'a"b.creds').write_text("")
    config.write_text(render(BrokerSettings(leaf_remotes=remotes, leaf_credentials=str(tmp_path / 'a"b.creds'))))
    assert "" == problems(config)


def test_only_a_leaf_listens_beyond_this_host() -> None:
    assert '"127.0.0.1:4222"' in render(BrokerSettings())
    assert "0.0.0.0" not in render(BrokerSettings(monitor_port=8222))
    assert '"0.0.0.0:4222"' in render(BrokerSettings(leaf_remotes=("nats-leaf://hub:7422",)))


@pytest.mark.parametrize(
    "given", [{"user": "ada", "password": 's"ecret'}, {"token": "t0ken$HOME"}], ids=["user", "token"]
)
async def test_it_wants_the_credentials_that_are_set(settings: BrokerSettings, given: dict[str, str]) -> None:
    guarded = msgspec.structs.replace(settings, **given)
    broker = EmbeddedBroker(guarded)
    broker.start()
    try:
        async with connect(guarded, "test") as connected:
            assert connected.connected
        with pytest.raises(Denied, match="authorization violation"):
            async with connect(settings, "test"):
                raise AssertionError("let in")
    finally:
        broker.stop()


def test_monitoring_has_the_storage_and_its_limit(settings: BrokerSettings) -> None:
    broker = EmbeddedBroker(msgspec.structs.replace(settings, monitor_port=free_port()))
    broker.start()
    try:
        streams = httpx2.get(f"http://127.0.0.1:{broker.settings.monitor_port}/varz").json()["jetstream"]["config"]
    finally:
        broker.stop()
    assert (10 * GIB, str(Path(settings.data_dir) / "jetstream")) == (streams["max_storage"], streams["store_dir"])


@pytest.mark.parametrize("given", [{}, {"GOMEMLIMIT": "123MiB", "GOGC": "90", "GOMAXPROCS": "3"}])
def test_its_share_of_the_machine_is_limited_and_what_is_set_counts(
    settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    for name in ("GOMEMLIMIT", "GOGC", "GOMAXPROCS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(server, "usable_cores", lambda: 9.5)
    monkeypatch.setattr(server, "usable_memory", lambda: 64 * GIB)
    broker = EmbeddedBroker(settings)
    broker.start()
    try:
        assert broker.command is not None
        environ = dict(
            line.partition("=")[::2] for line in Path(f"/proc/{broker.command.pid}/environ").read_text().split("\0")
        )
    finally:
        broker.stop()
    if given:
        assert given == {name: environ[name] for name in given}
    else:
        assert (str(2 * GIB), "150", "4") == (environ["GOMEMLIMIT"], environ["GOGC"], environ["GOMAXPROCS"])


@pytest.mark.parametrize(("usable", "expected"), [(0.5, "1"), (1, "1"), (2, "1"), (3.9, "1"), (4, "2"), (64, "32")])
def test_it_runs_on_half_of_the_cores_at_least_on_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usable: float, expected: str
) -> None:
    monkeypatch.delenv("GOMAXPROCS", raising=False)
    monkeypatch.setattr(server, "usable_cores", lambda: usable)
    assert expected == server._environ(DataDir(tmp_path), GIB)["GOMAXPROCS"]


@pytest.mark.parametrize(
    ("stored", "store_max", "usable", "expected"),
    [
        (0, 10 * GIB, 8 * GIB, int(0.09 * 10 * GIB)),
        (0, GIB, 8 * GIB, 640 * MIB),
        (0, 10 * GIB, 64 * GIB, 2 * GIB),
        (9 * GIB, 10 * GIB, 8 * GIB, 640 * MIB + int(0.07 * 9 * GIB)),
        (10 * GIB, 10 * GIB, 2 * GIB, GIB),
        (0, 10 * GIB, GIB, 512 * MIB),
    ],
)
def test_its_memory_limit_leaves_room_for_what_is_stored_and_half_of_the_memory(
    stored: int, store_max: int, usable: int, expected: int
) -> None:
    assert expected == soft_limit(stored, store_max, usable)


def test_what_is_stored_are_the_files_of_the_streams(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert data.stored_bytes == 0
    (tmp_path / "jetstream" / "streams").mkdir(parents=True)
    (tmp_path / "jetstream" / "streams" / "1.blk").write_bytes(b"x" * 5000)
    (tmp_path / "broker.log").write_bytes(b"x")
    assert 5000 == data.stored_bytes


def test_its_files_are_nobody_elses_business(settings: BrokerSettings) -> None:
    broker = EmbeddedBroker(settings)
    broker.start()
    broker.stop()
    modes = {
        name: (Path(settings.data_dir) / name).stat().st_mode & 0o777 for name in (".", "broker.conf", "broker.log")
    }
    assert {".": 0o700, "broker.conf": 0o600, "broker.log": 0o600} == modes


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_its_parent_and_frees_the_data(settings: BrokerSettings, how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(settings.port), settings.data_dir], stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout
        assert b"ready\n" == parent.stdout.readline()
        parent.send_signal(how)
    while is_listening(settings.port):
        pass  # it was told by the kernel, and takes its milliseconds
    broker = EmbeddedBroker(settings)
    broker.start()
    broker.stop()


async def test_a_connection_to_nobody_is_unavailable_and_names_the_address(settings: BrokerSettings) -> None:
    with pytest.raises(Unavailable, match=f"127.0.0.1:{settings.port}"):
        async with connect(settings, "test", timeout_s=0.2):
            raise AssertionError("connected to nobody")


def has_streams(data_dir: Path) -> bool:
    return (data_dir / "jetstream").is_dir()
