"""Which addresses http steps may reach: hostile spellings, names, and what http_allow lists."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.allowed_hosts import allowed_host
from penstock.config.settings import HttpTaskSettings
from penstock.worker.http_tasks.addresses import Address, AddressRules, carried, kind_of
from penstock.worker.http_tasks.attempt import open_attempts
from penstock.worker.http_tasks.connecting import Resolve, UnresolvedName
from penstock.worker.tasks.failures import NonRetriable, Retriable
from tests.support.web_server import answer, web_server

REFUSED = (
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%2",
    "fec0::1",
    "ff02::1",
)
PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2001:200::1",
    "2606:4700::1111",
    "2a00:1450:4001:800::200e",
)
# What some reader somewhere takes for 127.0.0.1 or for 169.254.169.254
HOSTILE_URLS = (
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://0/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://127.0.0.1.:80/",
    "http://127%2e0%2e0%2e1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.0.0.1/",  # noqa: RUF001
    "http://127。0。0。1/",
    "https://[fe80::1%25lo]/",
    "http://user@127.0.0.1/",
    "http://public.example@127.0.0.1/",
    "http://127.0.0.1\\@public.example/",
    "http://127.0.0.1:80\\@public.example/",
    "http://:80/",
    "http:///etc/passwd",
    "http://",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://127.0.0.1/",
    "//127.0.0.1/",
    "127.0.0.1",
    "",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1/\r\nHost: x",
    "http://\x00127.0.0.1/",
)


def rules(*entries: str) -> AddressRules:
    return AddressRules(tuple(map(allowed_host, entries)))


def names(*addresses: str, asked: list[str] | None = None) -> Resolve:
    """A resolver by which every name means these addresses."""

    async def resolve(host: str, port: int) -> Sequence[Address]:
        if asked is not None:
            asked.append(host)
        return [ip_address(address) for address in addresses]

    return resolve


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused_by_what_it_is(address: str) -> None:
    refusal = rules().refusal("host.example", ip_address(address), 443)

    assert refusal is not None
    assert refusal.startswith(f"{ip_address(address)} is ")


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_refused(address: str) -> None:
    assert rules().refusal("host.example", ip_address(address), 443) is None


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_public(address: Address) -> None:
    real = carried(address)
    if real.is_private or real.is_loopback or real.is_link_local or real.is_multicast or real.is_reserved:
        assert kind_of(real) is not None


@pytest.mark.parametrize(
    ("entry", "host", "address", "port", "allowed"),
    [
        ("10.1.2.3", "a.example", "10.1.2.3", 80, True),
        ("10.1.2.3", "a.example", "10.1.2.4", 80, False),
        ("10.1.2.3", "a.example", "::ffff:10.1.2.3", 80, True),
        ("10.1.2.3", "a.example", "64:ff9b::10.1.2.3", 80, True),
        ("10.1.2.3:8080", "a.example", "10.1.2.3", 8080, True),
        ("10.1.2.3:8080", "a.example", "10.1.2.3", 80, False),
        ("10.0.0.0/8", "a.example", "10.200.0.1", 9, True),
        ("10.0.0.0/8", "a.example", "11.0.0.1", 9, True),  # public as it is
        ("10.0.0.0/8", "a.example", "127.0.0.1", 9, False),
        ("::1", "a.example", "::1", 80, True),
        ("[::1]", "a.example", "::1", 80, True),
        ("[::1]:8080", "a.example", "::1", 8080, True),
        ("[::1]:8080", "a.example", "::1", 80, False),
        ("fd00::/8", "a.example", "fd12::1", 80, True),
        ("0.0.0.0/0", "a.example", "::1", 80, False),
        ("build.internal", "build.internal", "10.1.2.3", 80, True),
        ("build.internal", "BUILD.internal.", "10.1.2.3", 80, True),
        ("build.internal", "evil.example", "10.1.2.3", 80, False),
        ("build.internal", "x.build.internal", "10.1.2.3", 80, False),
        ("build.internal:443", "build.internal", "10.1.2.3", 443, True),
        ("build.internal:443", "build.internal", "10.1.2.3", 80, False),
    ],
)
def test_an_entry_of_http_allow_lets_through_what_it_names(
    entry: str, host: str, address: str, port: int, allowed: bool
) -> None:
    assert (rules(entry).refusal(host, ip_address(address), port) is None) is allowed


@pytest.mark.parametrize(
    "entry",
    ["", "10.0.0.1/8", "10.0.0",
      "127.1", "0x7f.1", "a b", "*.internal", "host:0", "host:70000", "host:x", "[::1", "::1]",
     "http://host", "[10.0.0.1]", "10.0.0.0/8:80", "a..b", "-a", "1::2::3"],
)  # fmt: skip
def test_an_entry_that_means_nothing_certain_is_refused(entry: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - settings have the text
        allowed_host(entry)


@pytest.mark.parametrize("url", HOSTILE_URLS)
async def test_no_spelling_leads_to_this_machine_or_beyond(url: str) -> None:
    """With the system's own resolver, which knows the odd ones."""
    async with open_attempts(HttpTaskSettings()) as attempts:
        with pytest.raises((NonRetriable, Retriable)) as caught:
            await attempts.make({"url": url, "timeout": "5s"}, "task")

    if isinstance(caught.value, Retriable):  # it is no host for anybody
        assert "the name cannot be resolved" in str(caught.value)
    else:
        assert "may not be reached" in str(caught.value) or "the url" in str(caught.value)


async def test_a_name_that_means_this_machine_is_refused_and_nothing_is_sent() -> None:
    asked: list[str] = []
    async with (
        web_server(lambda _: answer()) as server,
        open_attempts(HttpTaskSettings(), names("127.0.0.1", asked=asked)) as attempts,
    ):
        with pytest.raises(NonRetriable) as caught:
            await attempts.make({"url": server.url(host="rebind.example")}, "task")

    assert str(caught.value) == (
        "rebind.example may not be reached: 127.0.0.1 is loopback, and http_allow does not list it"
    )
    assert asked == ["rebind.example"]
    assert server.connections == 0


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    """A name server that answers first with an allowed address, then with another, gets no second question."""
    answers = [[ip_address("127.0.0.1")], [ip_address("127.0.0.2")]]

    async def rebinding(host: str, port: int) -> Sequence[Address]:
        return answers.pop(0)

    async with (
        web_server(lambda _: answer(200, b"here")) as server,
        open_attempts(HttpTaskSettings(allow=("127.0.0.1",)), rebinding) as attempts,
    ):
        output = await attempts.make({"url": server.url(host="rebind.example")}, "task")

    assert output["body"] == "here"
    assert server.asked[0].headers["host"] == f"rebind.example:{server.port}"
    assert len(answers) == 1


async def test_of_several_addresses_only_allowed_ones_are_tried() -> None:
    async with (
        web_server(lambda _: answer(200, b"here")) as server,
        open_attempts(
            HttpTaskSettings(allow=("127.0.0.1",)), names("169.254.169.254", "10.0.0.1", "127.0.0.1")
        ) as attempts,
    ):
        output = await attempts.make({"url": server.url(host="several.example")}, "task")

    assert output["status"] == 200


async def test_a_name_without_an_address_is_a_failure_that_may_pass() -> None:
    async def unknown(host: str, port: int) -> Sequence[Address]:
        raise UnresolvedName("the name cannot be resolved: Name or service not known")

    async with open_attempts(HttpTaskSettings(), unknown) as attempts:
        with pytest.raises(Retriable, match=r"GET http://gone\.example/ got no answer: the name cannot be resolved"):
            await attempts.make({"url": "http://gone.example/"}, "task")
