"""Limits web pages of other origins: they may not change anything, nor read responses, unless `cors_origins` has them.

The framework's own CORS middleware omits `Vary`, and requires a token of a preflight, which has none.
"""

from __future__ import annotations

from falcon import HTTP_204
from falcon.asgi import Request, Response

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Forbidden
from penstock.http.middleware.paths import is_control_plane

READING = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
METHODS = "GET, HEAD, POST, PUT, DELETE"
PREFLIGHT_S = "7200"  # as long as browsers keep it at most


class ForeignPages:
    """Refuses changes that a page of another origin sends, because the browser adds the user's credentials to them.

    Protocol: HTTP answers, foreign page. Only browsers send these headers, and no page can omit them.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._allowed = frozenset(origins)

    async def process_request(self, req: Request, resp: Response) -> None:
        if req.method in READING:
            return
        origin, site = req.get_header("Origin"), req.get_header("Sec-Fetch-Site")
        if (origin is None and site is None) or origin in self._allowed or not is_control_plane(req.path):
            return
        if origin is not None and not _is_own(origin, req.get_header("Host")):
            raise Forbidden(f"a page of {quoted(origin)} may not change anything: SERVICE_CORS_ORIGINS can allow it")
        if site is not None and site not in OWN_SITES:
            raise Forbidden("a page of another site may not change anything: SERVICE_CORS_ORIGINS can allow it")


class Cors:
    """Lets pages of these origins use the API, each with its own token if one is required; there are no cookies."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._allowed = frozenset(origins)

    async def process_request(self, req: Request, resp: Response) -> None:
        """Answer a preflight for any path: it comes from the browser itself, shows nothing and changes nothing."""
        if (
            req.method != "OPTIONS"
            or not req.get_header("Access-Control-Request-Method")
            or not self._allowed_origin(req)
        ):
            return
        resp.status, resp.complete = HTTP_204, True
        resp.set_headers({"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": PREFLIGHT_S})
        if wanted := req.get_header("Access-Control-Request-Headers"):
            resp.set_header("Access-Control-Allow-Headers", wanted)

    async def process_response(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        resp.append_header("Vary", "Origin")
        if origin := self._allowed_origin(req):
            resp.set_headers({"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "*"})

    def _allowed_origin(self, req: Request) -> str | None:
        origin = req.get_header("Origin")
        return origin if origin in self._allowed else None


def _is_own(origin: str, host: str | None) -> bool:
    """Whether an origin is the one that the request was sent to. The scheme is unknown here: TLS ends before the
    service."""
    return host is not None and origin.partition("://")[2].lower() == host.lower()
