"""/openapi.json, /docs and /schemas/definition.json: the description of the API for programs and for people, and that
of definitions for editors. They work in any state of the service."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256

from falcon import HTTP_304
from falcon.asgi import Request, Response

# Nothing is loaded from anywhere, and nothing runs.
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class CachedText:
    """Text that `write` makes at the first request. Its content security policy is `policy`."""

    def __init__(self, write: Callable[[], bytes], media: str, policy: str = POLICY) -> None:
        self._write, self._media, self._policy = write, media, policy

    @cached_property
    def _content(self) -> tuple[bytes, str]:
        data = self._write()
        return data, sha256(data).hexdigest()[:32]

    def show(self, req: Request, resp: Response) -> None:
        """Send it, or 304 if the client has it already."""
        data, tag = self._content
        resp.etag, resp.cache_control = tag, ("no-cache",)  # kept by clients, and asked for whether it still holds
        resp.set_headers(
            {
                "Content-Security-Policy": self._policy,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
            }
        )
        if any(tag == known or known == "*" for known in req.if_none_match or ()):
            resp.status = HTTP_304
        else:
            resp.data, resp.content_type = data, self._media


class Document:
    def __init__(self, write: Callable[[], bytes]) -> None:
        self._page = CachedText(write, "application/json")

    async def on_get(self, req: Request, resp: Response) -> None:
        """This API as an OpenAPI 3.1 document."""
        self._page.show(req, resp)


class DefinitionSchema:
    def __init__(self, write: Callable[[], bytes]) -> None:
        self._page = CachedText(write, "application/json")

    async def on_get(self, req: Request, resp: Response) -> None:
        """The JSON Schema of workflow definitions, for editors."""
        self._page.show(req, resp)


class Reference:
    def __init__(self, write: Callable[[], bytes], style: str) -> None:
        """`style` is the style sheet in the page, the only one that the policy allows."""
        allowed = base64.b64encode(sha256(style.encode()).digest()).decode()
        self._page = CachedText(write, "text/html; charset=utf-8", f"{POLICY}; style-src 'sha256-{allowed}'")

    async def on_get(self, req: Request, resp: Response) -> None:
        """This API as a page for people."""
        self._page.show(req, resp)
