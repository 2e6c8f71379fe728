"""`penstock workflow schema`: what an editor is given accepts what can be registered, and refuses what cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from penstock.engine.validation import problems
from penstock.http.openapi.definition_schema import definition_schema
from tests.authoring.rebuilding import shown_definitions
from tests.cli.conftest import Penstock

SCHEMA = definition_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
SHOWN = shown_definitions()
STEP = {"id": "a", "task": "t"}
REFUSED: dict[str, Any] = {
    "no object": [],
    "no name": {"steps": [STEP]},
    "no steps": {"name": "w"},
    "no step in steps": {"name": "w", "steps": []},
    "steps of another type": {"name": "w", "steps": {}},
    "a misspelt field": {"name": "w", "steps": [STEP], "time_out": "1s"},
    "a misspelt field of a step": {"name": "w", "steps": [{**STEP, "retry_policy": {}}]},
    "a name with a space": {"name": "a b", "steps": [STEP]},
    "an unknown type of step": {"name": "w", "steps": [{"id": "a", "type": "nap"}]},
    "a step without a task": {"name": "w", "steps": [{"id": "a"}]},
    "a sleep without config": {"name": "w", "steps": [{"id": "a", "type": "sleep"}]},
    "a misspelt field of config": {
        "name": "w",
        "steps": [{"id": "a", "type": "http", "config": {"url": "https://a.example", "verb": "GET"}}],
    },
    "too many retries": {"name": "w", "steps": [{**STEP, "retries": 100_001}]},
    "retries as text": {"name": "w", "steps": [{**STEP, "retries": "3"}]},
    "no duration": {"name": "w", "timeout": "soon", "steps": [STEP]},
    "no strategy": {"name": "w", "steps": [STEP], "default_retry": {"max_attempts": 1, "strategy": "random"}},
    "dependencies as text": {"name": "w", "steps": [STEP, {"id": "b", "task": "t", "depends_on": "a"}]},
    "sticky otherwise": {"name": "w", "steps": [STEP], "sticky": "yes"},
}


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert len(SHOWN) > 10


@pytest.mark.parametrize("place", SHOWN)
def test_a_definition_that_is_shown_fits_the_schema(place: str) -> None:
    assert [] == [error.message for error in VALIDATOR.iter_errors(SHOWN[place])]


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_for_its_form_does_not_fit_the_schema(case: str) -> None:
    assert problems(REFUSED[case])
    assert not VALIDATOR.is_valid(REFUSED[case])


def test_a_definition_may_name_its_schema() -> None:
    definition = {"$schema": "./definition.schema.json", "name": "w", "steps": [STEP]}

    assert [] == problems(definition)
    assert VALIDATOR.is_valid(definition)


def test_the_command_prints_the_schema_or_writes_it(penstock: Penstock, tmp_path: Path) -> None:
    assert SCHEMA == json.loads(penstock("workflow", "schema").out)
    assert "" == penstock("workflow", "schema", "--out", str(tmp_path / "s.json")).out
    assert SCHEMA == json.loads((tmp_path / "s.json").read_bytes())
