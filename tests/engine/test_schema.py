"""Input schemas: what is refused when a workflow is registered, and what is said of an input."""

from __future__ import annotations

import orjson
import pytest

from penstock.engine.definition.schema import LISTED_BYTES_MAX, PROBLEMS_MAX, SCHEMA_BYTES_MAX, Schema
from penstock.engine.errors import Invalid


def schema(document: object) -> Schema:
    return Schema(orjson.dumps(document))


ORDER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "a b": {"items": {"type": "string"}}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_a_valid_value_has_no_problems() -> None:
    assert schema(ORDER).check(b'{"n":1,"a b":["x"]}', "input") == []


def test_a_problem_names_the_place_and_the_value() -> None:
    assert schema(ORDER).check(b'{"n":"x"}', "input") == ['input.n: "x" is not of type "integer"']


def test_a_place_inside_an_array_under_an_odd_key_is_named() -> None:
    assert schema(ORDER).check(b'{"n":1,"a b":["x",2]}', "input[3]") == [
        'input[3]["a b"][1]: 2 is not of type "string"'
    ]


def test_every_problem_of_a_value_is_listed() -> None:
    problems = schema(ORDER).check(b'{"a b":[1],"q":3}', "input")
    assert len(problems) == 3
    assert 'input: "n" is a required property' in problems


@pytest.mark.parametrize(("document", "valid"), [(True, True), (False, False)])
def test_a_boolean_is_a_schema(document: bool, valid: bool) -> None:
    assert (schema(document).check(b"1", "input") == []) is valid


def test_at_most_ten_problems_are_given() -> None:
    assert len(schema({"items": {"type": "string"}}).check(orjson.dumps(list(range(1000))), "input")) == PROBLEMS_MAX


def test_a_large_value_gets_its_first_problem_only() -> None:
    value = orjson.dumps(list(range(LISTED_BYTES_MAX)))
    assert schema({"items": {"type": "string"}}).check(value, "input") == ['input[0]: 0 is not of type "string"']


def test_a_long_value_is_shown_short() -> None:
    problems = schema({"type": "integer"}).check(orjson.dumps("x" * 10_000), "input")
    assert len(problems) == 1
    assert len(problems[0]) < 400


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b'"\\ud800"', b"[" * 500 + b"]" * 500])
def test_a_value_that_cannot_be_read_is_a_problem_and_no_error(value: bytes) -> None:
    problems = schema({"type": "object"}).check(value, "input")
    assert len(problems) == 1
    assert problems[0].startswith("input: ")


def test_a_pattern_that_backtracks_without_end_is_given_up() -> None:
    problems = schema({"pattern": "^(a|a)*(?=b)c$"}).check(orjson.dumps("a" * 1000 + "b"), "input")
    assert len(problems) == 1


@pytest.mark.parametrize("document", [{"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}])
def test_a_schema_that_refers_to_itself_ends(document: object) -> None:
    assert schema(document).check(b"[[1]]", "input") == []


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:9/x.json", "https://example.com/x.json", "file:///etc/passwd", "other.json", "urn:x:y"],
)
def test_a_reference_to_another_document_is_refused(reference: str) -> None:
    with pytest.raises(Invalid, match=r"^input_schema: .*not present") as caught:
        schema({"properties": {"a": {"$ref": reference}}})
    assert reference in str(caught.value)


def test_a_reference_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(Invalid, match="does not exist"):
        schema({"$ref": "#/$defs/x"})


def test_every_problem_of_a_schema_is_named() -> None:
    with pytest.raises(Invalid) as caught:
        schema({"properties": {"a": {"type": "foo"}, "b": {"minimum": "x"}}})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "input_schema.properties.a.type",
        "input_schema.properties.b.minimum",
    ]


@pytest.mark.parametrize(
    "document", [3, "x", None, [], {"pattern": "("}, {"pattern": "(a{1000}){1000}"}, {"$schema": 3}]
)
def test_what_is_no_schema_is_refused(document: object) -> None:
    with pytest.raises(Invalid, match=r"^input_schema"):
        schema(document)


def test_another_dialect_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match="draft-07"):
        schema({"$schema": "http://json-schema.org/draft-07/schema#"})


def test_the_dialect_may_be_named() -> None:
    assert (
        schema({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "null"}).check(b"null", "input")
        == []
    )


def test_a_huge_schema_is_refused() -> None:
    with pytest.raises(Invalid, match="bytes"):
        schema({"enum": ["x" * SCHEMA_BYTES_MAX]})
