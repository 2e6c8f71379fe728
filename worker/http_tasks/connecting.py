"""Connections to allowed addresses alone: a name is resolved once, and what is connected to is what was checked."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address

import httpcore2

from penstock.worker.http_tasks.addresses import Address, AddressRules
from penstock.worker.tasks.failures import NonRetriable
from penstock.worker.tasks.threads import Threads

CONNECT_S_MAX = 5.0  # to one address of several

# The addresses of a host. Raises UnresolvedName.
Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class UnresolvedName(httpcore2.ConnectError):
    """A host that has no address, or whose name servers do not answer."""


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Owned by a connection pool, which reuses a connection only for the scheme, host and port that it was made for."""

    def __init__(self, rules: AddressRules, resolve: Resolve) -> None:
        self._rules, self._resolve = rules, resolve
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connected to the first allowed address that answers. Raises NonRetriable when none is allowed, ConnectError
        and ConnectTimeout."""
        error: Exception | None = None
        for address in await self._allowed(host, port):
            try:
                return await self._network.connect_tcp(str(address), port, timeout=CONNECT_S_MAX)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                error = failed
        assert error is not None
        raise error

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def _allowed(self, host: str, port: int) -> list[Address]:
        found = await self._addresses(host, port)
        refusals = {address: self._rules.refusal(host, address, port) for address in found}
        if allowed := [address for address, refusal in refusals.items() if refusal is None]:
            return allowed
        reasons = ", ".join(reason for reason in refusals.values() if reason)
        raise NonRetriable(f"{host} may not be reached: {reasons}, and http_allow does not list it")

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        with suppress(ValueError):
            return [ip_address(host)]
        if found := await self._resolve(host, port):
            return found
        raise UnresolvedName("the name has no address")


def resolving(threads: Threads) -> Resolve:
    """The resolver of the system, called in `threads`: a name server that does not answer holds up nobody else."""

    async def resolve(host: str, port: int) -> Sequence[Address]:
        try:
            found = await threads.run(_look_up, host, port)
        except (OSError, UnicodeError) as error:
            raise UnresolvedName(f"the name cannot be resolved: {reason_of(error)}") from None
        return list(dict.fromkeys(ip_address(address[0]) for *_, address in found))

    return resolve


def reason_of(error: BaseException) -> str:
    """The text of a system's error, without its number."""
    if isinstance(error, ConnectionError) and error.errno is not None:  # the event loop has words of its own for these
        return os.strerror(error.errno)
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _look_up(host: str, port: int) -> list[tuple[object, object, object, object, tuple[str, int]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]
