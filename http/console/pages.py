"""/console and all addresses below it: one page of HTML, which shows what its address says."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from falcon import HTTP_303
from falcon.asgi import Request, Response
from jinja2 import Environment, FileSystemLoader, Template

from penstock.engine.access.scopes import KeyScope
from penstock.engine.errors import NotFound, PenstockError
from penstock.http.backend import Backend
from penstock.http.console.assets import Assets
from penstock.http.console.summary import Summary, summary
from penstock.http.middleware.credentials import Credentials

ROOT = "/console"
ASSETS = "assets/"
MAIN, RUN = "src/main.tsx", "src/run/page.tsx"
# Everything comes from the service itself; no markup can bring a script or a style of its own.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class ConsoleResource:
    def __init__(self, backend: Backend, credentials: Credentials, assets: Assets) -> None:
        self._backend, self._credentials, self._assets = backend, credentials, assets

    @cached_property
    def _template(self) -> Template:
        made = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
        return made.get_template("page.html")

    async def on_get(self, req: Request, resp: Response, page: str = "") -> None:
        """The page, with a summary in it for whoever may read."""
        if page.startswith(ASSETS):
            raise NotFound("the console has no such file")
        resp.content_type = "text/html; charset=utf-8"
        resp.text = self._template.render(
            summary=await self._summary(req, page),
            style=self._assets.url("style.css"),
            font=self._assets.url("inter.woff2"),
            scripts=self._assets.scripts(MAIN),
            more=self._assets.scripts(RUN) if page.startswith("runs/") else [],
        )
        resp.set_headers(
            {
                "Content-Security-Policy": POLICY,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "same-origin",
                "Cache-Control": "no-store",
            }
        )

    async def _summary(self, req: Request, page: str) -> Summary:
        """What the page shows without scripts; a problem instead of what the caller may not see."""
        try:
            req.context.caller = caller = await self._credentials.of_control_plane(req)
            caller.check_scope(KeyScope.READ, "the console")
            return await summary(self._backend, req, page)
        except PenstockError as error:
            return Summary(problem=str(error))


class FrontDoor:
    """The root of the service: browsers go on to the console."""

    async def on_get(self, req: Request, resp: Response) -> None:
        """To the console."""
        resp.status = HTTP_303
        resp.set_header("Location", ROOT)
