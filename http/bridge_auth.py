"""The bearer token of the worker bridge. Without one in the settings, the bridge is closed."""

from __future__ import annotations

import re

import structlog
from falcon.asgi import Request, Response

from penstock.engine.errors import Denied
from penstock.http.auth import bears

PATHS = re.compile(r"/v1/(workers|tasks|runs)(/.*)?")

log = structlog.get_logger()


class BridgeAuth:
    """Looks at every request of the bridge before it is routed. Spec: Authentication; Protocol: HTTP answers."""

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else token.encode()
        if token is None:
            log.warning("bridge_closed", reason="SERVICE_BRIDGE_TOKEN is not set")

    async def process_request(self, req: Request, resp: Response) -> None:
        if not PATHS.fullmatch(req.path):
            return
        if self._expected is None:
            raise Denied("the worker bridge is closed: the service has no SERVICE_BRIDGE_TOKEN")
        if not bears(req, self._expected):
            raise Denied("a valid bearer token is needed")
