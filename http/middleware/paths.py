"""404 for paths that do not begin with one slash. The router overlooks further ones, and one that is missing.

Whoever looks at a path before the router does, a rule of a proxy or a check here, would take `//metrics` for something
else.
"""

from __future__ import annotations

from falcon import HTTPRouteNotFound
from falcon.asgi import Request, Response


class Paths:
    """Part of every application."""

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.path[:1] != "/" or req.path[1:2] == "/":
            raise HTTPRouteNotFound()
