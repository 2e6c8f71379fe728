"""The bearer token of the worker bridge. Without one in the settings, the bridge is closed."""

from __future__ import annotations

import re
from typing import Any

from falcon.asgi import Request, Response

from penstock.config.logging import get_logger
from penstock.engine.errors import Denied
from penstock.http.middleware.auth import bears

PATHS = re.compile(r"/v1/(workers|tasks|runs)(/.*)?", re.DOTALL)

log = get_logger()


class BridgeAuth:
    """Checks every request of the bridge. Spec: Authentication; Protocol: HTTP answers.

    It checks before routing, so that a client without a token cannot find out which paths exist; and again when the
    router has found a resource of the bridge, by any spelling of its path.
    """

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else token.encode()
        if token is None:
            log.warning("bridge_closed", reason="SERVICE_BRIDGE_TOKEN is not set")

    async def process_request(self, req: Request, resp: Response) -> None:
        if PATHS.fullmatch(req.path):
            self._check(req)

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if PATHS.fullmatch(req.uri_template or ""):
            self._check(req)

    def _check(self, req: Request) -> None:
        if self._expected is None:
            raise Denied("the worker bridge is closed: the service has no SERVICE_BRIDGE_TOKEN")
        if not bears(req, self._expected):
            raise Denied("a valid bearer token is needed")
