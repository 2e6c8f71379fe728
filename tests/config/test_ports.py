"""Ports that cannot be listened on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from penstock.config.process.ports import trouble
from tests.support.service import free_port


@pytest.fixture(params=["127.0.0.1", "::1"])
def taken(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with socket.create_server(
        (request.param, 0), family=socket.AF_INET6 if ":" in request.param else socket.AF_INET
    ) as listener:
        yield listener.getsockname()[:2]


def test_a_port_that_somebody_listens_on_is_named_with_its_address(taken: tuple[str, int]) -> None:
    host, port = taken
    assert f"the HTTP port {port} on {host} is in use or not allowed: Address already in use" == trouble(
        "the HTTP port", host, port
    )


def test_all_addresses_are_in_use_when_one_of_them_is(taken: tuple[str, int]) -> None:
    everywhere = "::" if ":" in taken[0] else "0.0.0.0"
    assert "in use" in (trouble("the port", everywhere, taken[1]) or "")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "localhost"])
def test_a_free_port_is_no_trouble_and_stays_free(host: str) -> None:
    port = free_port()
    assert [None, None] == [trouble("the port", host, port), trouble("the port", host, port)]


def test_a_connection_that_has_just_ended_there_is_no_trouble() -> None:
    """Its port is kept by the system for a minute, and may be listened on all the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as taken:
            taken.shutdown(socket.SHUT_RDWR)  # this end waits
    assert trouble("the port", "127.0.0.1", port) is None


def test_a_host_that_is_not_ours_is_reported() -> None:
    assert "192.0.2.1" in (trouble("the port", "192.0.2.1", 1) or "")
