"""404 for paths that do not begin with exactly one slash. The router ignores additional or missing slashes.

A rule of a proxy, or a check here, that reads the path before the router does would treat `//metrics` as another path.
"""

from __future__ import annotations

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response


class Paths:
    """Part of every application."""

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.path[:1] != "/" or req.path[1:2] == "/":
            raise HTTPRouteNotFound()
