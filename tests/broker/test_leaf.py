"""The embedded broker as a leaf of a hub: what links there are, and what is said of those that do not stand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.broker.embedded.leaf import NOT_YET, UNSEEN, Link, check_links, read_report, write_report
from penstock.broker.embedded.server import EmbeddedBroker, monitor_port
from penstock.config.limits import LEAF_REMOTES_MAX
from penstock.config.settings import BrokerSettings, SettingsError, load
from penstock.engine.errors import Invalid, Unavailable
from tests.support.jwt_operator import Operator
from tests.support.listening import listening
from tests.support.server import Server, server
from tests.support.service import free_port
from tests.support.waiting import until, until_true

USERS = 'authorization { users: [{ user: "leaf", password: "right" }] }'


@contextmanager
def leaf_of(directory: Path, *remotes: str, credentials: Path | None = None) -> Iterator[BrokerSettings]:
    """The settings of an embedded broker that runs for the time of the block."""
    settings = BrokerSettings(
        port=free_port(),
        data_dir=str(directory / "leaf"),
        leaf_remotes=remotes,
        leaf_credentials=str(credentials) if credentials else None,
    )
    broker = EmbeddedBroker(settings)
    try:
        broker.start()
        yield settings
    finally:
        broker.stop()


@contextmanager
def hub(directory: Path, more: str = "", users: str = "", name: str = "hub") -> Iterator[tuple[Server, int]]:
    """A hub, and the port where its leaves come in."""
    port = free_port()
    with server(directory, f'leafnodes {{ listen: "127.0.0.1:{port}"\n{users} }}\n{more}', name) as one:
        yield one, port


async def links(settings: BrokerSettings, *expected: bool) -> tuple[Link, ...]:
    """What is found, once the links stand or not as expected and each problem is known."""

    async def find() -> tuple[Link, ...]:
        try:
            found = await asyncio.to_thread(check_links, settings)
        except Unavailable:  # its monitoring comes up a moment after it
            return ()
        known = all(link.problem != NOT_YET for link in found)
        return found if known and tuple(link.connected for link in found) == expected else ()

    return await until(find)


async def test_each_remote_has_its_own_link_and_its_own_problem(tmp_path: Path) -> None:
    dead = free_port()
    with hub(tmp_path, users=USERS) as (one, port), hub(tmp_path, users=USERS, name="other") as (other, other_port):
        await until_true(lambda: one.listens and other.listens)
        remotes = (
            f"nats-leaf://leaf:right@localhost:{port}",
            f"nats-leaf://leaf:wrong@127.0.0.1:{other_port}",
            f"nats-leaf://leaf:right@127.0.0.1:{dead}",
            "nats-leaf://leaf:right@hub.invalid",
        )
        with leaf_of(tmp_path, *remotes) as settings:
            found = await links(settings, True, False, False, False)
    assert Link(f"nats-leaf://***@localhost:{port}", True) == found[0]
    assert Link(f"nats-leaf://***@127.0.0.1:{other_port}", False, "Authorization Violation") == found[1]
    assert "connection refused" in (found[2].problem or "")
    assert "no such host" in (found[3].problem or "")
    assert not [link for link in found if "right" in repr(link) or "wrong" in repr(link)]


async def test_credentials_file_joins_a_hub_of_its_operator_only(tmp_path: Path) -> None:
    operator = Operator()
    right, wrong = operator.credentials(tmp_path / "right.creds"), Operator().credentials(tmp_path / "wrong.creds")
    with hub(tmp_path, operator.block()) as (one, port):
        await until_true(lambda: one.listens)
        with leaf_of(tmp_path / "a", f"nats-leaf://127.0.0.1:{port}", credentials=right) as settings:
            assert (True,) == tuple(link.connected for link in await links(settings, True))
        with leaf_of(tmp_path / "b", f"nats-leaf://127.0.0.1:{port}", credentials=wrong) as settings:
            [link] = await links(settings, False)
    assert "Authorization Violation" == link.problem


def test_credentials_file_that_cannot_be_read_is_named_at_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "missing.creds"
    with (
        pytest.raises(Invalid, match=f"the file {missing} of leaf_credentials cannot be read: No such file"),
        leaf_of(tmp_path, "nats-leaf://127.0.0.1:1", credentials=missing),
    ):
        raise AssertionError("it started")


async def test_a_hub_that_goes_and_comes_back_shows(tmp_path: Path) -> None:
    with hub(tmp_path, users=USERS) as (one, port):
        await until_true(lambda: one.listens)
        with leaf_of(tmp_path, f"nats-leaf://leaf:right@127.0.0.1:{port}") as settings:
            await links(settings, True)
            one.kill()
            [link] = await links(settings, False)
            assert "connection refused" in (link.problem or "")
            one.start()
            assert (Link(f"nats-leaf://***@127.0.0.1:{port}", True),) == await links(settings, True)


async def test_a_leaf_listens_everywhere_and_its_monitoring_on_this_host_only(tmp_path: Path) -> None:
    with leaf_of(tmp_path, "nats-leaf://127.0.0.1:1") as settings:
        await until_true(lambda: monitor_port(settings) is not None)
        port = monitor_port(settings)
        assert port
        assert {"0.0.0.0"} == listening(settings.port)
        assert {"127.0.0.1"} == listening(port)


def test_without_leaves_there_is_no_monitoring_unless_it_is_asked_for(tmp_path: Path) -> None:
    asked = free_port()
    for number, port in enumerate((0, asked)):
        settings = BrokerSettings(port=free_port(), data_dir=str(tmp_path / str(number)), monitor_port=port)
        broker = EmbeddedBroker(settings)
        broker.start()
        try:
            assert (port or None) == monitor_port(settings)
            assert {"127.0.0.1"} == listening(settings.port)
            assert ({"127.0.0.1"} if port == asked else set()) == listening(asked)
        finally:
            broker.stop()


def test_ten_hubs_are_allowed_and_eleven_are_not() -> None:
    hubs = [f"nats-leaf://hub-{number}:7422" for number in range(LEAF_REMOTES_MAX + 1)]
    assert (
        tuple(hubs[:-1])
        == load({"leaf_remotes": ",".join(hubs[:-1])}, {"SERVICE_CONFIG": ""}).settings.broker.leaf_remotes
    )
    with pytest.raises(SettingsError, match=r"leaf_remotes = .* must be at most 10 addresses"):
        load({"leaf_remotes": ",".join(hubs)}, {"SERVICE_CONFIG": ""})


def test_a_link_that_was_not_checked_lately_counts_as_down(tmp_path: Path) -> None:
    settings = BrokerSettings(data_dir=str(tmp_path), leaf_remotes=("nats-leaf://u:p@hub",))
    down = (Link("nats-leaf://***@hub", False, UNSEEN),)
    assert down == read_report(settings)
    up = (Link("nats-leaf://***@hub", True),)
    write_report(settings, up)
    assert up == read_report(settings)
    (tmp_path / "leaf.json").write_text('{"at":1.0,"links":[{"address":"nats-leaf://***@hub","connected":true}]}')
    assert down == read_report(settings)
    (tmp_path / "leaf.json").write_text("{")
    assert down == read_report(settings)
    with pytest.raises(Unavailable, match="monitoring is not up"):
        check_links(settings)
