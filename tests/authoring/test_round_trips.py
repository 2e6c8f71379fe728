"""Python and JSON say the same: every definition there is becomes a workflow and is the same JSON again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.authoring import Workflow
from penstock.engine.definition.definitions import as_registered
from penstock.engine.errors import Invalid
from penstock.engine.run.kinds.table import KINDS
from penstock.engine.validation import parse, problems
from tests.authoring.rebuilding import rebuilt, shown_definitions
from tests.properties.definitions import definitions

SHOWN = shown_definitions()


def normal(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition as the service would show it; an empty `config` says as much as none."""
    found: dict[str, Any] = orjson.loads(as_registered(parse(definition)))
    found["steps"] = [{key: value for key, value in step.items() if value != {}} for step in found["steps"]]
    return found


def test_there_are_definitions_with_every_kind_of_step() -> None:
    assert {step.get("type", "normal") for one in SHOWN.values() for step in one["steps"]} == set(KINDS)


@pytest.mark.parametrize("place", SHOWN)
def test_a_definition_that_is_shown_makes_the_round_trip(place: str) -> None:
    definition = SHOWN[place]

    assert Workflow.from_definition(definition).definition() == definition
    assert Workflow.from_definition(orjson.dumps(definition)).definition() == definition


@pytest.mark.parametrize("place", SHOWN)
def test_a_definition_that_is_shown_can_be_written_with_the_methods(place: str) -> None:
    definition = SHOWN[place]

    assert normal(rebuilt(definition).definition()) == normal(definition)


@settings(deadline=None, max_examples=40)
@given(definitions())
def test_any_definition_makes_the_round_trip_and_can_be_written_with_the_methods(definition: dict[str, Any]) -> None:
    if problems(definition):
        with pytest.raises(Invalid):
            Workflow.from_definition(definition)
        return
    whole = normal(definition)

    assert Workflow.from_definition(whole).definition() == whole
    assert normal(rebuilt(whole).definition()) == whole


@given(st.sampled_from(sorted(SHOWN)))
def test_a_workflow_from_a_definition_is_no_longer_that_document(place: str) -> None:
    definition = SHOWN[place]
    flow = Workflow.from_definition(definition)

    flow.definition()["steps"].clear()
    flow.sleep("a.step.of.its.own", duration="1s", after=definition["steps"][0]["id"])

    assert len(flow.definition()["steps"]) == len(definition["steps"]) + 1
    assert flow["a.step.of.its.own"].id not in [step["id"] for step in definition["steps"]]


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be an object, not an array"),
        ({"name": "w", "steps": [{"id": "a", "task": "t", "timeout": "soon"}]}, 'step "a": timeout "soon"'),
    ],
)
def test_what_is_no_definition_is_refused(definition: Any, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        Workflow.from_definition(definition)
