"""Who uses the worker bridge: SERVICE_BRIDGE_TOKEN, or a key. Without either, the bridge is closed."""

from __future__ import annotations

import re
from typing import Any

from falcon.asgi import Request, Response

from penstock.config.logging import get_logger
from penstock.config.process.author import set_author
from penstock.http.middleware.credentials import Credentials

log = get_logger()

PATHS = re.compile(r"/v1/(workers|tasks|runs)(/.*)?", re.DOTALL)


class BridgeAuth:
    """Checks every request of the bridge. Spec: Authentication; Protocol: HTTP answers.

    It checks before routing, so that a client without a token cannot find out which paths exist; and again when the
    router has found a resource of the bridge, by any spelling of its path.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        if not credentials.has_bridge_token:
            log.warning("bridge_closed", reason="SERVICE_BRIDGE_TOKEN is not set: only keys of scope operate open it")

    async def process_request(self, req: Request, resp: Response) -> None:
        if PATHS.fullmatch(req.path):
            self._check(req)

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if PATHS.fullmatch(req.uri_template or ""):
            self._check(req)

    def _check(self, req: Request) -> None:
        caller = req.context.caller = self._credentials.of_worker(req)
        set_author(caller.name)
