"""The document of the API as one HTML page, made from reference.html. Jinja escapes all text of the document.

The page has no scripts and loads nothing: see docs/adr/0018-reference-page.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from penstock.http.openapi import curl
from penstock.http.openapi.document import document

HERE = Path(__file__).parent
STYLE = (HERE / "reference.css").read_text(encoding="utf-8")
METHODS = ("get", "post", "put", "delete")

_CODE = re.compile(r"`([^`]+)`")


def render() -> bytes:
    """The page, in UTF-8."""
    return page(document()).encode()


def page(api: Mapping[str, Any]) -> str:
    """A whole document of HTML for this OpenAPI document."""
    return (
        _environment()
        .get_template("reference.html")
        .render(
            api=api,
            title=f"{api['info']['title']} {api['info']['version']}: HTTP API",
            style=Markup(STYLE),  # noqa: S704 - our own file
            phrases=HTTPStatus.__members__,
            curl=curl.command,
            operations=lambda tag: list(_of(api, tag)),
        )
    )


def _environment() -> Environment:
    made = Environment(loader=FileSystemLoader(HERE), autoescape=True)
    made.filters["prose"] = _prose
    made.filters["json"] = lambda value: orjson.dumps(value).decode()
    return made


def _prose(text: str) -> Markup:
    """Text in which `these` are shown as code."""
    parts = _CODE.split(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def _of(api: Mapping[str, Any], tag: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Path, method and operation of all operations with this tag."""
    for path, methods in api["paths"].items():
        for method in METHODS:
            if tag in methods.get(method, {}).get("tags", ()):
                yield path, method, methods[method]
