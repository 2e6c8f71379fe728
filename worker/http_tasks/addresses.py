"""Which addresses http steps may reach: public ones, and what `http_allow` lists.

What is public is written down here, not asked of the standard library: its answer changes from version to version.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, TypeAlias

from penstock.config.allowed_hosts import AllowedHost

Address: TypeAlias = IPv4Address | IPv6Address

# IANA IPv4 Special-Purpose Address Registry, and platforms' addresses that look public and are not
_NOT_PUBLIC_V4 = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "of this host"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "of the cloud platform"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
# Of IPv6 only 2000::/3 is public; the rest is named for the error's sake.
_PUBLIC_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", "loopback"),
        ("::/128", "of this host"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "reserved"),
        ("3fff::/20", "for documentation"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRules(NamedTuple):
    """Owned by the worker; `allowed` are the entries of `http_allow`."""

    allowed: tuple[AllowedHost, ...]

    def refusal(self, host: str, address: Address, port: int) -> str | None:
        """Why no connection may be made to `address`, one of the addresses of `host`; None when one may."""
        real = carried(address)
        kind = kind_of(real)
        if kind is None or any(rule.covers(host, real, port) for rule in self.allowed):
            return None
        return f"{address} is {kind}"


def kind_of(address: Address) -> str | None:
    """What an address is that is not public (`loopback`, `private`, …); None for a public one."""
    if isinstance(address, IPv4Address):
        return _first(kind for network, kind in _NOT_PUBLIC_V4 if address in network)
    found = _first(kind for network, kind in _NOT_PUBLIC_V6 if address in network)
    return found or (None if address in _PUBLIC_V6 else "reserved")


def carried(address: Address) -> Address:
    """The address that is reached by this one: the IPv4 address in a mapped or a NAT64 address, else itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address


def _first(kinds: Iterable[str]) -> str | None:
    return next(iter(kinds), None)
