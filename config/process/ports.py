"""Check before the start whether a port is free: a child that has to listen there would only fail over and over."""

from __future__ import annotations

import socket


def trouble(whose: str, host: str, port: int) -> str | None:
    """Why nothing can listen there: `the HTTP port 8080 on 127.0.0.1 is in use or not allowed: …`. None: it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host == "::":
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return f"{whose} {port} on {host} is in use or not allowed: {error.strerror}"
    return None
