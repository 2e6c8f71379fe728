"""What `http_allow` lists: addresses, networks and hosts that http steps may reach though they are not public."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from msgspec import Struct

HOST_CHARS_MAX = 253

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
# What ends in a number would be read as an address by some resolvers: 127.1, 0x7f.1
_HOST = re.compile(rf"({_LABEL}\.)*(?!(0x[0-9a-f]*|[0-9]+)\.?$){_LABEL}\.?")
_PORT = re.compile(r"[0-9]{1,5}")


class AllowedHost(Struct, frozen=True):
    """One entry. It has a `network` (one address is a network, too) or the name of a `host`. `port` None: any."""

    network: IPv4Network | IPv6Network | None = None
    host: str | None = None
    port: int | None = None

    def covers(self, host: str, address: IPv4Address | IPv6Address, port: int) -> bool:
        """Whether a connection to `address`, as one of the addresses of `host`, is allowed by this entry."""
        if self.port not in (None, port):
            return False
        if self.network is None:
            return self.host == host.lower().rstrip(".")
        return address.version == self.network.version and address in self.network


def allowed_host(text: str) -> AllowedHost:
    """The entry that is written as an address, a CIDR, host or host:port. Raises ValueError."""
    text = text.strip().lower()
    if "/" in text:
        return AllowedHost(network=ip_network(text))
    if text.count(":") > 1 and not text.startswith("["):
        return AllowedHost(network=ip_network(IPv6Address(text)))
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    return _entry(host if colon else text, _port(port) if colon else None)


def _entry(host: str, port: int | None) -> AllowedHost:
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError(host)
        return AllowedHost(network=ip_network(IPv6Address(host[1:-1])), port=port)
    if re.fullmatch(r"[0-9.]+", host):
        return AllowedHost(network=ip_network(ip_address(host)), port=port)
    if len(host) > HOST_CHARS_MAX or not _HOST.fullmatch(host):
        raise ValueError(host)
    return AllowedHost(host=host.rstrip("."), port=port)


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= 65535:
        raise ValueError(text)
    return int(text)
