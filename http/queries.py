"""400 for query parameters where the control plane knows none, so that no misspelt option passes in silence. Protocol: HTTP answers.

Responders that know some name the others themselves (params.py), along with all else that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from falcon.asgi import Request, Response

from penstock.engine.errors import Invalid
from penstock.engine.identifiers import quoted
from penstock.http.openapi_table import Access, Operation


class Queries:
    """Part of every application; looks at a request that has a query before its responder does."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        without = [one for one in operations if one.access is Access.API and not any(found.place == "query" for found in one.parameters)]
        self._without = {
            (method, one.path) for one in without for method in (one.method.upper(), *(("HEAD",) if one.method == "get" else ()))
        }

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.query_string and (req.method, req.uri_template) in self._without:
            raise Invalid(*[f"unknown query parameter {quoted(name)}" for name in req.params] or ["no query is known here"])
