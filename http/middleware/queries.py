"""400 for query parameters where the control plane has none, so that a misspelt option is not ignored.

Protocol: HTTP answers. Responders with parameters report unknown ones themselves (messages/params.py), with all other
problems.
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
        """`without` are the methods and path templates that have no query parameter."""
        self._without = without

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.query_string and (req.method, req.uri_template) in self._without:
            raise Invalid(
                *[f"unknown query parameter {quoted(name)}" for name in req.params] or ["this path has no parameters"]
            )
