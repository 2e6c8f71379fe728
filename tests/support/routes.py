"""The routes of the application, without the pages of the console: tests/console has their tests."""

from __future__ import annotations

from collections.abc import Iterator

from falcon.inspect import RouteInfo, inspect_routes

from penstock.http.app import Application


def api_routes(app: Application) -> Iterator[RouteInfo]:
    """What the API's document has."""
    return (route for route in inspect_routes(app) if not is_page(route.path))


def is_page(path: str) -> bool:
    return path in ("/", "/console") or path.startswith("/console/")
