"""The bearer token of the control plane, if the settings have one; protection.py applies when they have none."""

from __future__ import annotations

from hmac import compare_digest

from falcon.asgi import Request, Response

from penstock.engine.errors import Denied

# Paths that show nothing of workflows and runs.
OPEN_PATHS = frozenset({"/health", "/ready", "/health/telemetry", "/openapi.json", "/docs"})


class Auth:
    """Checks every request before it is routed. Protocol: HTTP answers, SERVICE_API_TOKEN."""

    def __init__(self, token: str) -> None:
        self._expected = token.encode()

    async def process_request(self, req: Request, resp: Response) -> None:
        if is_control_plane(req.path) and not bears(req, self._expected):
            raise Denied("a valid bearer token is needed")


def is_control_plane(path: str) -> bool:
    """Whether a path, also one that does not exist, is for administrators. Bridge, webhooks and approvals authenticate
    by themselves."""
    return not (path in OPEN_PATHS or path.startswith("/v1/") or _is_approval(path))


def bears(req: Request, expected: bytes) -> bool:
    """Whether the request has this bearer token. Takes constant time."""
    scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
    # The header's bytes as they came: they are latin-1 to the framework.
    return scheme.lower() == "bearer" and compare_digest(token.strip().encode("latin-1"), expected)


def _is_approval(path: str) -> bool:
    """Whether it is /runs/{run_id}/approval/{step_id}."""
    segments = path.split("/", 5)
    return len(segments) == 5 and segments[1] == "runs" and segments[3] == "approval"
