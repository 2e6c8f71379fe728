"""Checks of values by the schemas of the OpenAPI document."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from penstock.http.openapi.document import document


def validator(schema: Any) -> Any:
    """Of values that this schema describes, which may refer to the document's components."""
    components = {"schemas": document()["components"]["schemas"]}
    return jsonschema_rs.Draft202012Validator({**schema, "components": components}, validate_formats=True)
