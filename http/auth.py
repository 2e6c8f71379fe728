"""The bearer token of the control plane. Without one in the settings, the control plane is open."""

from __future__ import annotations

from hmac import compare_digest

from falcon.asgi import Request, Response

from penstock.engine.errors import Denied

OPEN_PATHS = frozenset({"/health", "/ready"})


class Auth:
    """Looks at every request before it is routed. Protocol: HTTP answers, SERVICE_API_TOKEN."""

    def __init__(self, token: str) -> None:
        self._expected = token.encode()

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.path in OPEN_PATHS:
            return
        scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
        # The header's bytes as they came: they are latin-1 to the framework.
        if scheme.lower() != "bearer" or not compare_digest(token.strip().encode("latin-1"), self._expected):
            raise Denied("a valid bearer token is needed")
