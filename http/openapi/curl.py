"""The curl command of each operation, for the page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias

import orjson

Operation: TypeAlias = Mapping[str, Any]  # of an OpenAPI document

SERVICE = "localhost:8080"
SIGNED = '-H "X-Signature-256: sha256=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d" " -f1)"'
BEARER = '-H "Authorization: Bearer $TOKEN"'


def command(path: str, method: str, operation: Operation) -> str:
    """A command with the operation's examples. Secrets are in $TOKEN and $SECRET."""
    secrets = {name for way in operation["security"][:1] for name in way}
    body = operation.get("requestBody")
    example = _example(body) if body else None
    signed = any(name.startswith("X-") for name in secrets)
    words = ["curl", "-s", *_method(method, has_body=body is not None), _address(path, operation, secrets)]
    if any(name.endswith("Token") and name != "approvalToken" for name in secrets):
        words.append(BEARER)
    if signed:
        return " ".join([f"BODY={shlex.quote(example or '')}\n{words[0]}", *words[1:], SIGNED, '-d "$BODY"'])
    return " ".join([*words, "-d", shlex.quote(example)] if example else words)


def _method(method: str, *, has_body: bool) -> list[str]:
    """The method option; empty where curl would use this method by itself."""
    return [] if method == ("post" if has_body else "get") else ["-X", method.upper()]


def _address(path: str, operation: Operation, secrets: set[str]) -> str:
    given = [one for one in operation.get("parameters", ()) if one["in"] == "path" or one["required"]]
    for one in given:
        path = path.replace(f"{{{one['name']}}}", str(one["example"]))
    query = [f"{one['name']}={one['example']}" for one in given if one["in"] == "query"]
    if "approvalToken" in secrets:
        query.append("token=$TOKEN")
    return f'"{SERVICE}{path}?{"&".join(query)}"' if query else f"{SERVICE}{path}"


def _example(body: Mapping[str, Any]) -> str:
    """The example of a body, as it is sent."""
    ((media, content),) = body["content"].items()
    return orjson.dumps(content["example"]).decode() if media == "application/json" else str(content["example"])
