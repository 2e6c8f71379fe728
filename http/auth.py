"""The bearer token of the control plane. Without one in the settings, the control plane is open."""

from __future__ import annotations

import re
from hmac import compare_digest

from falcon.asgi import Request, Response

from penstock.engine.errors import Denied

# What tells nothing of anybody's work, and what has an authentication of its own: bridge, webhooks, approvals.
OPEN_PATHS = frozenset({"/health", "/ready", "/health/telemetry", "/openapi.json", "/docs"})
OWN_AUTHENTICATION = re.compile(r"/v1/.*|/runs/[^/]*/approval/[^/]*")


class Auth:
    """Looks at every request before it is routed. Protocol: HTTP answers, SERVICE_API_TOKEN."""

    def __init__(self, token: str) -> None:
        self._expected = token.encode()

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.path in OPEN_PATHS or OWN_AUTHENTICATION.fullmatch(req.path):
            return
        if not bears(req, self._expected):
            raise Denied("a valid bearer token is needed")


def bears(req: Request, expected: bytes) -> bool:
    """Whether the request has this very bearer token; how long the answer takes tells nothing about the token."""
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    # The header's bytes as they came: they are latin-1 to the framework.
    return scheme.lower() == "bearer" and compare_digest(token.strip().encode("latin-1"), expected)
