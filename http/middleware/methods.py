"""HEAD wherever there is GET, and 405 for methods that HTTP does not define; the framework answers so for the
others."""

from __future__ import annotations

from typing import Any

from falcon import COMBINED_METHODS, HTTPMethodNotAllowed
from falcon.asgi import App, Request, Response

ON_GET, ON_HEAD = "on_get", "on_head"


class Methods:
    """Part of every application."""

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.method not in COMBINED_METHODS:
            raise HTTPMethodNotAllowed(
                [method for method in COMBINED_METHODS if hasattr(resource, f"on_{method.lower()}")]
            )


class HeadingApp(App[Request, Response]):
    """Its routes answer HEAD like GET: the responder runs, and the framework sends only the headers."""

    def add_route(self, uri_template: str, resource: object, **more: Any) -> None:
        if hasattr(resource, ON_GET) and not hasattr(resource, ON_HEAD):
            setattr(resource, ON_HEAD, getattr(resource, ON_GET))
        super().add_route(uri_template, resource, **more)
