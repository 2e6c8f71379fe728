"""Protected mode: protects the control plane while it has neither token nor key. Protocol: HTTP answers.

Anyone who reaches the port could start runs. So clients on other machines are refused, and also host names that an
attacker could let resolve to this machine: for a browser, a page of such a name has the same origin (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

from falcon.asgi import Request

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Forbidden

# Top-level names that nobody can register: what is under them means what this network says (RFC 6761, RFC 6762, ICANN).
OWN_DOMAINS = frozenset({"localhost", "local", "internal"})
WAY_OUT = (
    "create a key on that machine (penstock key create), set SERVICE_API_TOKEN to a token of your choice, or "
    "SERVICE_INSECURE=true to let everybody in (docs/security.md)"
)
ELSEWHERE = f"protected mode: without a token or a key, the control plane answers only this machine: {WAY_OUT}"


def check_near(req: Request) -> None:
    """Raises Forbidden for a request that does not come from this machine, or to a name that may mean another one."""
    local, host = is_local(req.scope), req.get_header("Host") or ""  # a browser always sends one
    if local and is_own_name(host):
        return
    if local:
        raise Forbidden(
            f"protected mode: the host {quoted(host)} may mean any machine: use an address or localhost, or {WAY_OUT}"
        )
    raise Forbidden(ELSEWHERE)


def is_local(scope: Mapping[str, Any]) -> bool:
    """Whether the peer of the connection is on this machine; headers that name another one are ignored.

    A TCP peer has no address if it disconnected before it was accepted, but its request is still read: so a peer
    without an address is local only on a Unix socket.
    """
    client = scope.get("client")
    if client is not None:
        host, _ = client
        return is_loopback(host)
    _, port = scope.get("server") or (None, 0)
    return not isinstance(port, int)


@lru_cache(256)
def is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


@lru_cache(256)
def is_own_name(host: str) -> bool:
    """Whether a Host header has an address, or a name that no one else can register."""
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0].rstrip(".")
    _, dot, domain = name.lower().rpartition(".")
    return not dot or domain in OWN_DOMAINS or _is_address(name)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
