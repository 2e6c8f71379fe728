"""Requests to the application in this process, as a client on the same machine sends them: from a loopback address, to
one."""

from __future__ import annotations

from typing import Any

from falcon.testing import ASGIConductor

LOOPBACK = "127.0.0.1"


class Conductor(ASGIConductor):
    """The framework's own leaves the peer's address out, and is for another host. Both can be given with each
    request."""

    async def simulate_request(self, *args: Any, **more: Any) -> Any:
        return await super().simulate_request(*args, **{"remote_addr": LOOPBACK, "host": LOOPBACK, **more})
