"""JSON with expressions in its strings."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.scope import References
from penstock.engine.expressions.template import compile_template
from tests.engine.expressions.values import RUN, SCOPE, rendered, template, template_problems

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
PLAIN = JSON_VALUES.filter(lambda value: "${{" not in json.dumps(value))


@given(PLAIN)
def test_a_value_without_expressions_is_constant_and_stays_as_it_is(value: Any) -> None:
    found = template(value)

    assert found.is_constant is True
    assert found.references == References()
    assert found.json({}) == msgspec.json.encode(value)


@given(JSON_VALUES)
def test_a_whole_string_is_the_value_with_its_type(value: Any) -> None:
    written = json.dumps(value)

    assert json.loads(rendered("${{ input }}", written)) == value
    assert json.loads(rendered({"a": ["${{ input[0] }}"]}, f"[{written}]")) == {"a": [value]}
    assert json.loads(rendered("${{ {'v': input} }}", written)) == {"v": value}


@given(JSON_VALUES)
def test_in_a_longer_string_it_is_text(value: Any) -> None:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()

    assert json.loads(rendered("<${{ input.v }}>", json.dumps({"v": value}))) == f"<{text}>"


@given(st.text())
def test_results_are_never_evaluated_again(text: str) -> None:
    hostile = "${{ 1 + 1 }} $${{ " + text

    assert json.loads(rendered({"a": "${{ input }}", "b": "x${{ input }}"}, json.dumps(hostile))) == {
        "a": hostile,
        "b": "x" + hostile,
    }


@given(st.text(alphabet="${} a'\"", max_size=12))
def test_what_is_escaped_comes_out_as_it_was(text: str) -> None:
    """Every `${{` with a `$` more in front of it is text."""
    assert json.loads(rendered(text.replace("${{", "$${{"))) == text


@given(st.lists(st.text(alphabet="{}'\"$ab\\", max_size=8), max_size=3))
def test_an_expression_ends_at_the_first_braces_outside_its_strings(texts: list[str]) -> None:
    literals = [json.dumps(text) for text in texts]
    value = "|".join(f"${{{{ {literal} }}}}" for literal in literals) + "|"

    assert json.loads(rendered(value)) == "|".join(texts) + "|"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("${{ {'a': {'b': 1}}}}", {"a": {"b": 1}}),
        ("${{ '}}' }}", "}}"),
        ("${{ r'\\}}' }}", "\\}}"),
        ("${{ '''it's }} ''' }}", "it's }} "),
        ('${{ "\\"}}" }}', '"}}'),
        ("${{1}}}", "1}"),
        ("$${{ 1 }}", "${{ 1 }}"),
        ("$$${{ 1 }}", "$${{ 1 }}"),
        ("a ${{ 1 }}$${{${{ 2 }}", "a 1${{2"),
        (" ${{ 1 }}", " 1"),
        ("${{\n  1\n}}", 1),
        ("}} {{ $ {", "}} {{ $ {"),
        ("", ""),
        (
            "at ${{ timestamp('2026-01-31T08:00:00.5Z') }} for ${{ duration('90s') }}",
            "at 2026-01-31T08:00:00.500Z for 1m30s",
        ),
        ("${{ duration('-90s') }}", "-1m30s"),
        ({"${{ 1 }}": "${{ 1 }}"}, {"${{ 1 }}": 1}),
        (["${{ null }}", "x${{ null }}", "x${{ [1, 'a', null] }}"], [None, "xnull", 'x[1,"a",null]']),
    ],
)
def test_a_template_gives(value: Any, expected: Any) -> None:
    assert json.loads(rendered(value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${{ 1", ['with: column 1: "${{" has no "}}" (write "$${{" for the characters themselves)']),
        ("a ${{ '}}", ['with: column 3: "${{" has no "}}" (write "$${{" for the characters themselves)']),
        ("${{ }}", ["with: column 5: the expression is empty"]),
        (
            {"user": {"name": "hi ${{  nope }}", "tags": ["a", "${{ 1 + }}"]}, "ok": "${{ input.a }}"},
            [
                'with.user.name: column 9: "nope" is no name that can be read here; these are: input, run, steps',
                "with.user.tags[1]: column 8: the expression ends too early",
            ],
        ),
        (
            "${{ nope }} ${{ nor }}",
            [
                'with: column 5: "nope" is no name that can be read here; these are: input, run, steps',
                'with: column 17: "nor" is no name that can be read here; these are: input, run, steps',
            ],
        ),
        (
            {"a": "\ud800"},
            [
                "with cannot be written as JSON: 'utf-8' codec can't encode character '\\ud800' in position 0: "
                "surrogates not allowed"
            ],
        ),
    ],
)
def test_a_problem_names_its_path_and_column(value: Any, expected: list[str]) -> None:
    assert template_problems(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": ["${{ input.x }}"]}, 'with.a[0]: expression "input.x": there is no key "x"'),
        ("x ${{ b'abc' }}", "with: expression \"b'abc'\": the result has bytes, which JSON cannot say"),
        (
            "${{ 0.0 / 0.0 }}",
            'with: expression "0.0 / 0.0": the result has NaN (what comes of 0.0 / 0.0), which JSON cannot say',
        ),
    ],
)
def test_a_failure_names_its_path(value: Any, expected: str) -> None:
    with pytest.raises(ExpressionFailed) as failed:
        rendered(value, "{}")

    assert str(failed.value) == expected


def test_a_template_knows_what_all_its_expressions_read() -> None:
    found = template({"a": "${{ input }}", "b": ["x${{ steps.fetch.output }}${{ steps['my-step'].status }}"], "c": 1})

    assert found.is_constant is False
    assert found.references == References(frozenset({"input"}), frozenset({"fetch"}), frozenset({"my-step"}))


def test_a_payload_that_is_passed_on_stays_as_it_came() -> None:
    given = '{"n": 1.50, "big": 123456789012345678901234567890}'

    assert rendered({"all": "${{ input }}"}, given) == b'{"all":' + given.encode() + b"}"
    assert rendered("${{ steps.fetch.output }}", fetch="[1 ,2]") == b"[1 ,2]"


def test_several_templates_share_what_was_decoded() -> None:
    values = Values({"input": Raw(b'{"a": [1, 2]}'), "run": RUN, "steps": {}})

    assert template("${{ input.a }}").json(values) == b"[1,2]"
    assert values.read("input") is values.read("input")


def test_a_result_is_at_most_one_mib_in_all() -> None:
    half = json.dumps("x" * (512 * 1024 - 2))

    assert len(rendered(["${{ input }}", "${{ input }}"], json.dumps("x" * (512 * 1024 - 4)))) == 1024 * 1024 - 1
    with pytest.raises(ExpressionFailed, match=r"^with\[1\]: the result has more than 1048576 bytes$"):
        rendered(["${{ input }}", "${{ input }}"], half)
    with pytest.raises(ExpressionFailed, match="the result has more than 1048576 bytes"):
        rendered("x${{ [input, input, input] }}", half)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Bearer ${{ secret.TOKEN }}", ["Bearer ", {"secret": "TOKEN"}]),
        ("${{secret.A}}", [{"secret": "A"}]),
        ("${{ secret.A }}:${{ secret.A }}${{ secret.B }}", [{"secret": "A"}, ":", {"secret": "A"}, {"secret": "B"}]),
        ("${{ secret.A }}${{ secret.A }}", [{"secret": "A"}, {"secret": "A"}]),
        ("${{ input }}${{ secret.A }}${{ 1 }} x", ["${{ secret.B }}", {"secret": "A"}, "1 x"]),
        ("${{ input }}", "${{ secret.B }}"),
        ("$${{ secret.A }}", "${{ secret.A }}"),
        ({"a": ["x ${{ secret.A }}"]}, {"a": [["x ", {"secret": "A"}]]}),
    ],
)
def test_a_secret_is_left_to_whoever_knows_it(value: Any, expected: Any) -> None:
    """What the input has in it is text, and never names a secret."""
    found = compile_template(value, SCOPE, "headers", secrets=True)

    assert json.loads(found.json({"input": "${{ secret.B }}"})) == expected


@pytest.mark.parametrize("value", ["${{ secret.A + 'x' }}", "${{ secret }}", "${{ secret.a-b }}", "${{ secret['A'] }}"])
def test_a_secret_is_named_alone(value: str) -> None:
    with pytest.raises(Invalid, match='"secret" is no name that can be read here'):
        compile_template(value, SCOPE, "headers", secrets=True)


def test_elsewhere_there_are_no_secrets() -> None:
    assert template_problems("${{ secret.A }}") == [
        'with: column 5: "secret" is no name that can be read here; these are: input, run, steps'
    ]
