"""The document of the API as one page of HTML: without scripts, without anything from elsewhere, legible in dark and
light.

Whatever is text in the document is escaped where it becomes HTML, in `_tag`: what is no `Html` cannot come through it
otherwise.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any, TypeAlias

import orjson

from penstock.http.openapi.document import document
from penstock.http.openapi.style import STYLE

Schema: TypeAlias = Mapping[str, Any]

SERVICE = "localhost:8080"
METHODS = ("get", "post", "put", "delete")
NULL = {"type": "null"}  # counts as absent, which is said once for all
SINGLE = frozenset({"link", "meta"})
SIGNED = '-H "X-Signature-256: sha256=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d" " -f1)"'

_CODE = re.compile(r"`([^`]+)`")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def render() -> bytes:
    """The page, in UTF-8."""
    return page(document()).encode()


def page(api: Mapping[str, Any]) -> str:
    """A whole document of HTML for this OpenAPI document."""
    title = f"{api['info']['title']} {api['info']['version']}: HTTP API"
    head = _tag(
        "head",
        _tag("meta", charset="utf-8"),
        _tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _tag("meta", name="color-scheme", content="light dark"),
        _tag("title", title),
        _tag("style", Html(STYLE)),
    )
    main = _tag("main", _opening(api, title), *_operations(api), _schemas(api["components"]["schemas"]))
    return "<!doctype html>\n" + _tag("html", head, _tag("body", _contents(api), main), lang="en")


def _tag(kind: str, *children: str, **attributes: str) -> Html:
    """An element. Children that are no Html are escaped; of attribute names, `_` at the end is cut off, `_` within is
    `-`."""
    named = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    if kind in SINGLE:
        return Html(f"<{kind}{named}>")
    inner = "".join(child if isinstance(child, Html) else escape(child) for child in children)
    return Html(f"<{kind}{named}>{inner}</{kind}>")


def _joined(parts: Iterable[str], between: str = "") -> Html:
    return Html(escape(between).join(part if isinstance(part, Html) else escape(part) for part in parts))


def _prose(text: str) -> Html:
    """Text in which `these` are code."""
    parts = _CODE.split(text)
    return _joined(_tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Html:
    body = [_tag("tr", *(_tag("td", cell) for cell in row)) for row in rows]
    return (
        _tag("table", _tag("thead", _tag("tr", *(_tag("th", name) for name in head))), _tag("tbody", *body))
        if body
        else Html()
    )


def _contents(api: Mapping[str, Any]) -> Html:
    lists = []
    for tag in api["tags"]:
        items = [
            _tag("li", _tag("a", _badge(method), " ", path, href=f"#{one['operationId']}"))
            for path, method, one in _of(api, tag["name"])
        ]
        lists += [_tag("h2", tag["name"]), _tag("ul", *items)]
    return _tag(
        "nav",
        _tag("h1", _tag("a", api["info"]["title"], href="#top")),
        *lists,
        _tag("h2", _tag("a", "Schemas", href="#schemas")),
    )


def _opening(api: Mapping[str, Any], title: str) -> Html:
    ways = api["components"]["securitySchemes"].items()
    rows = [(_tag("code", name), _carried(way), _prose(way["description"])) for name, way in ways]
    return _tag(
        "header",
        _tag("h1", title, id="top"),
        _tag("p", _prose(api["info"]["description"])),
        _tag("p", "For programs: ", _tag("a", "/openapi.json", href="/openapi.json"), ", an OpenAPI 3.1 document."),
        _tag("h2", "Authentication", id="authentication"),
        _table(("name", "where", ""), rows),
        _tag("h2", "Errors", id="errors"),
        _table(("status", "", "header"), _refusals(api["components"]["responses"])),
    )


def _refusals(responses: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, answer in responses.items():
        status = HTTPStatus[name]
        yield (
            _joined((_tag("code", str(status.value)), f" {status.phrase}")),
            answer["description"],
            ", ".join(answer.get("headers", ())),
        )


def _carried(way: Schema) -> Html:
    if way["type"] == "http":
        return _tag("code", "Authorization: Bearer …")
    return _joined((f"{way['in']} ", _tag("code", way["name"])))


def _of(api: Mapping[str, Any], tag: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in api["paths"].items():
        for method in METHODS:
            if tag in methods.get(method, {}).get("tags", ()):
                yield path, method, methods[method]


def _operations(api: Mapping[str, Any]) -> Iterator[Html]:
    for tag in api["tags"]:
        yield _tag("h2", tag["name"], class_="group")
        yield _tag("p", _prose(tag["description"]))
        for path, method, one in _of(api, tag["name"]):
            yield _operation(path, method, one)


def _operation(path: str, method: str, one: Mapping[str, Any]) -> Html:
    parameters = [
        (
            _joined((_tag("code", found["name"]), _required(found["required"]))),
            found["in"],
            _joined((_kind(found["schema"]), ". ", _prose(found["description"]))),
        )
        for found in one.get("parameters", ())
    ]
    return _tag(
        "section",
        _tag("h3", _tag("a", _badge(method), " ", _tag("code", path), href=f"#{one['operationId']}")),
        _tag("p", _tag("b", _prose(one["summary"])), " ", _prose(one["description"])),
        _access(one["security"]),
        _table(("parameter", "in", ""), parameters),
        _body(one.get("requestBody")),
        _tag("h4", "Example"),
        _tag("pre", _tag("code", _curl(path, method, one))),
        _tag("h4", "Answers"),
        _table(("status", "", ""), _answers(one["responses"])),
        _errors(one["responses"]),
        id=one["operationId"],
    )


def _badge(method: str) -> Html:
    return _tag("span", method.upper(), class_=f"method {method}")


def _required(required: bool) -> Html:
    return _tag("span", " required", class_="required") if required else Html()


def _access(security: list[Mapping[str, Any]]) -> Html:
    if not security:
        return Html()
    ways = [" and ".join(way) for way in security if way]
    return _tag(
        "p",
        "Needs ",
        _tag("a", " or ".join(ways), href="#authentication"),
        " if the service has one." if {} in security else ".",
    )


def _body(body: Mapping[str, Any] | None) -> Html:
    if body is None:
        return Html()
    kinds = [
        _joined((_tag("code", media), " ", _kind(content["schema"]))) for media, content in body["content"].items()
    ]
    return _tag(
        "p",
        _tag("b", "Body: "),
        _joined(kinds, ", or "),
        ". " if body["required"] else ", or none. ",
        body["description"],
    )


def _answers(answers: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, answer in answers.items():
        if "$ref" not in answer:
            kinds = [
                _joined((_tag("code", media), " ", _kind(content["schema"])))
                for media, content in answer.get("content", {}).items()
            ]
            yield _tag("code", status), _prose(answer["description"]), _joined(kinds, ", or ")


def _errors(answers: Mapping[str, Any]) -> Html:
    statuses = [
        _tag("a", _tag("code", status), href="#errors") for status, answer in answers.items() if "$ref" in answer
    ]
    return _tag("p", "Errors: ", _joined(statuses, ", ")) if statuses else Html()


def _curl(path: str, method: str, one: Mapping[str, Any]) -> str:
    """How the request is made in a shell."""
    given = [found for found in one.get("parameters", ()) if found["in"] == "path" or found["required"]]
    for found in given:
        path = path.replace(f"{{{found['name']}}}", str(found["example"]))
    query = [f"{found['name']}={found['example']}" for found in given if found["in"] == "query"]
    secrets = {name for way in one["security"][:1] for name in way}
    if "approvalToken" in secrets:
        query.append("token=$TOKEN")
    address = f'"{SERVICE}{path}?{"&".join(query)}"' if query else f"{SERVICE}{path}"
    body = one.get("requestBody")
    example = _example(body) if body else None
    signed = any(name.startswith("X-") for name in secrets)
    words = ["curl", "-s", *([] if method == ("post" if body else "get") else ["-X", method.upper()]), address]
    words += (
        ['-H "Authorization: Bearer $TOKEN"']
        if any(name.endswith("Token") and name != "approvalToken" for name in secrets)
        else []
    )
    words += [SIGNED, '-d "$BODY"'] if signed else ["-d", shlex.quote(example)] if example else []
    return (f"BODY={shlex.quote(example)}\n" if signed and example else "") + " ".join(words)


def _example(body: Mapping[str, Any]) -> str:
    """The example of a body, as it is sent."""
    ((media, content),) = body["content"].items()
    return orjson.dumps(content["example"]).decode() if media == "application/json" else str(content["example"])


def _schemas(schemas: Mapping[str, Schema]) -> Html:
    sections = [_schema(name, schema) for name, schema in sorted(schemas.items())]
    return _tag("div", _tag("h2", "Schemas", id="schemas", class_="group"), *sections)


def _schema(name: str, schema: Schema) -> Html:
    required = schema.get("required", ())
    rows = [
        (_joined((_tag("code", field), _required(field in required))), _kind(kind), _prose(kind.get("description", "")))
        for field, kind in schema.get("properties", {}).items()
    ]
    about = _prose(schema.get("description", ""))
    shape = Html() if rows else _tag("p", _kind({key: value for key, value in schema.items() if key != "description"}))
    return _tag(
        "section",
        _tag("h3", _tag("a", name, href=f"#schema-{name}")),
        _tag("p", about),
        shape,
        _table(("field", "", ""), rows),
        id=f"schema-{name}",
    )


def _kind(schema: Schema) -> Html:
    """What a value may be, in a few words."""
    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return _tag("a", name, href=f"#schema-{name}")
        case {"enum": list(words)}:
            return _joined((_tag("code", str(word)) for word in words), " | ")
        case {"const": value}:
            return _tag("code", orjson.dumps(value).decode())
        case {"anyOf": list(options)} if "properties" not in schema:
            return _joined((_kind(option) for option in options if option != NULL), " or ")
        case {"type": "array"}:
            return _joined(("array of ", _kind(schema.get("items", {})), *_bounds(schema)))
        case {"type": "object", "properties": dict(properties)}:
            fields = (_joined((_tag("code", name), ": ", _kind(kind))) for name, kind in properties.items())
            return _joined(("{ ", _joined(fields, ", "), " }"))
        case {"type": "object", "additionalProperties": dict(values)}:
            return _joined(("object of ", _kind(values)))
        case {"type": list(kinds)}:
            return _joined(kinds, " or ")
        case {"type": str(kind)}:
            return _joined((schema.get("format", kind), *_bounds(schema)))
        case _:
            return Html("any")


def _bounds(schema: Schema) -> Iterator[str]:
    for least, most, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
    ):
        if least in schema and most in schema:
            yield f", {schema[least]} to {schema[most]}{unit}"
        elif least in schema or most in schema:
            yield f", at least {schema[least]}{unit}" if least in schema else f", at most {schema[most]}{unit}"
    if "pattern" in schema:
        yield " "
        yield _tag("code", schema["pattern"])
    if "default" in schema:
        yield ", default "
        yield _tag("code", orjson.dumps(schema["default"]).decode())
