"""400 for query parameters where the control plane knows none, so that no misspelt option passes in silence. Protocol:
HTTP answers.

Responders that know some name the others themselves (messages/params.py), along with all else that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from falcon.asgi import Request, Response

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid


class Queries:
    """Part of every application; checks a request that has a query before its responder is called."""

    def __init__(self, without: Collection[tuple[str, str]]) -> None:
        """`without` are the methods and path templates that know no query parameter."""
        self._without = without

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.query_string and (req.method, req.uri_template) in self._without:
            raise Invalid(
                *[f"unknown query parameter {quoted(name)}" for name in req.params] or ["no query is known here"]
            )
