"""405 for methods that HTTP does not know; for those that it knows, the framework answers so by itself."""

from __future__ import annotations

from typing import Any

from falcon import COMBINED_METHODS, HTTPMethodNotAllowed
from falcon.asgi import Request, Response


class Methods:
    """Part of every application."""

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.method not in COMBINED_METHODS:
            raise HTTPMethodNotAllowed([method for method in COMBINED_METHODS if hasattr(resource, f"on_{method.lower()}")])
