"""/audit: who has changed what, and what was refused."""

from __future__ import annotations

from falcon.asgi import Request, Response

from penstock.client.access.views import AuditView
from penstock.http.backend import Backend
from penstock.http.messages import params, responses


class AuditResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """The audit log, newest first; a Link leads to the next page."""
        wanted = params.audit_filter(req)
        page = await self._backend.store.audit.page(wanted.limit, wanted.before)
        responses.ok(
            resp,
            [
                AuditView(one.at, one.who, one.what, one.on, one.origin, one.outcome, one.status, one.more)
                for one in page.entries
            ],
        )
        if page.next is not None:
            resp.set_header("Link", responses.link(req, ".".join(map(str, page.next))))
