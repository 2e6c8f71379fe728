"""Which paths belong to the control plane; and 404 for those that do not begin with exactly one slash. The router
ignores additional or missing slashes.

A rule of a proxy, or a check here, that reads the path before the router does would treat `//metrics` as another path.
"""

from __future__ import annotations

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response

# Paths that show nothing of workflows and runs.
OPEN_PATHS = frozenset(
    {
        "/",
        "/health",
        "/ready",
        "/health/telemetry",
        "/openapi.json",
        "/schemas/definition.json",
        "/docs",
        "/console",
    }
)


class Paths:
    """Part of every application."""

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.path[:1] != "/" or req.path[1:2] == "/":
            raise HTTPRouteNotFound()


def is_control_plane(path: str) -> bool:
    """Whether a path, also one that does not exist, is of the control plane. Bridge, webhooks and approvals
    authenticate by themselves, and so does what the pages of the console show."""
    return not (path in OPEN_PATHS or path.startswith(("/v1/", "/console/")) or _is_approval(path))


def _is_approval(path: str) -> bool:
    """Whether it is /runs/{run_id}/approval/{step_id}."""
    segments = path.split("/", 5)
    return len(segments) == 5 and segments[1] == "runs" and segments[3] == "approval"
