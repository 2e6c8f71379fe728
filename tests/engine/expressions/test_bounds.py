"""An evaluation is bounded by counting: it ends the same everywhere, names its bound, and never takes long."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.evaluation import values as values_module
from penstock.engine.expressions.evaluation.patterns import states_of
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import compile_expression
from tests.engine.expressions.values import SCOPE, problems, reason, value_of

WORK = "it does too much: more than 268435456 units of work (a character looked at is 1, one copied 8, a value 64)"
ITERATIONS = "its macros go through more than 10000 elements"
RESULT = "the result has more than 1048576 bytes"
MIB = 1024 * 1024
CPU_S_MAX = 2.0  # on a machine that is busy: alone, none takes more than 0.5


def timed_reason(text: str, given_input: Any) -> str:
    """Why the expression fails; it must do so in little time."""
    began = time.process_time()
    found = reason(text, json.dumps(given_input))
    assert time.process_time() - began < CPU_S_MAX
    return found


def outcome(text: str, input_json: str) -> Any:
    """What the expression gives, or why it fails."""
    try:
        return value_of(text, input_json)
    except ExpressionFailed as error:
        return str(error)


@pytest.mark.parametrize(
    "macro", ["map(x, x)", "all(x, true)", "exists(x, false)", "filter(x, true)", "exists_one(x, true)"]
)
def test_macros_go_through_ten_thousand_elements_and_no_more(macro: str) -> None:
    text = f"[input.{macro}].size() == 1"

    assert value_of(text, json.dumps([1] * 10_000)) is True
    assert timed_reason(text, [1] * 10_001) == ITERATIONS


def test_elements_of_all_macros_of_an_evaluation_are_counted_together() -> None:
    nested = "input.all(x, input.all(y, true))"

    assert value_of(nested, json.dumps([1] * 99)) is True
    assert timed_reason(nested, [1] * 100) == ITERATIONS
    assert timed_reason("input.all(x, true) && input.all(x, true)", [1] * 6000) == ITERATIONS


def test_nothing_absorbs_a_bound() -> None:
    assert timed_reason("input.all(x, true) || true", [1] * 10_001) == ITERATIONS


LARGE_TEXT = {"items": [1] * 9999, "text": "ab" * 50_000}
MUCH_WORK: list[tuple[str, Any]] = [
    ("input.items.all(x, !input.text.contains('zz'))", LARGE_TEXT),
    ("input.items.map(x, input.text + 'a').size()", LARGE_TEXT),
    ("input.items.all(x, input.text <= input.text)", LARGE_TEXT),
    ("input.items.all(x, input.text == input.text)", LARGE_TEXT),
    ("input.items.all(x, size(bytes(input.text)) > 0)", LARGE_TEXT),
    ("input.items.all(x, size(string(b'x' + bytes(input.text))) > 0)", LARGE_TEXT),
    ("input.all(x, input + [1] != [])", list(range(4000))),
    ("input.all(x, input == input.map(y, y))", [1] * 99 + [[1] * 100_000]),
    ("input.all(x, input == input)", [[number] for number in range(3000)]),
    ("input.all(x, input == input)", [{"a": {"b": 1}}] * 2000),
    ("input.all(x, input == input)", ["x" * 100] * 4000),
    ("input.all(x, !(-1 in input))", list(range(4000))),
    ("input.all(x, !('y' in input))", ["x"] * 4000),
    ("input.all(x, " + " && ".join(["x + 1 > 0"] * 300) + ")", [1] * 9999),
    ("input.all(x, duration(x) + duration(x) > duration('1s'))", ["1h"] * 9999),
    ("input.all(x, " + " + ".join(["timestamp(x).getMinutes()"] * 9) + " >= 0)", ["2026-01-31T08:00:00Z"] * 9999),
    ("input.all(x, x.matches('^[a-z]{1,50}$') || x.matches('^[0-9]{1,50}$') || x == '')", ["0123456789" * 5] * 9999),
]


@pytest.mark.parametrize(("text", "given_input"), MUCH_WORK, ids=[text[:40] for text, _ in MUCH_WORK])
def test_work_is_bounded_whatever_it_consists_of(text: str, given_input: Any) -> None:
    assert timed_reason(text, given_input) == WORK


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["input"] * 500) + "]",
        "input.map(x, [input, input, x])",
        "{'a': [input, input], 'b': {'c': input}}",
        "input[0] + input[0]",
    ],
)
def test_a_result_is_at_most_one_mib(text: str) -> None:
    assert timed_reason(text, ["x" * (MIB // 2)]) == RESULT


REGULAR = [
    ("(a*)*b", "a" * 100_000),
    ("^(a|aa)+$", "a" * 100_000 + "b"),
    ("(a?){100}(a){100}b", "a" * 1000),
    ("(a?){1000}b", "a" * MIB),
    ("a[ab]{500}c", "ab" * (MIB // 2)),
    ("(.*)(.*)(.*)(.*)(.*)[^a]b", "a" * MIB),
    ("(" + "|".join(f"a[ab]{{{count}}}" for count in range(900, 1000, 10)) + ")c", "ab" * 50_000),
]


@pytest.mark.parametrize(("pattern", "text"), REGULAR)
def test_a_regular_expression_that_explodes_elsewhere_is_bounded(pattern: str, text: str) -> None:
    began = time.process_time()
    found = outcome("input.text.matches(input.pattern)", json.dumps({"text": text, "pattern": pattern}))
    assert time.process_time() - began < CPU_S_MAX
    assert found is False or found.endswith((WORK, "states with its repetitions, 10000 is the most"))


def test_a_regular_expression_that_is_written_out_is_refused_when_it_is_registered() -> None:
    assert problems("input.matches('((a{100}){100}){100}')") == [
        "column 14: the regular expression has 2020200 states with its repetitions, 10000 is the most"
    ]


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("abc", 3, 6),
        ("a{10}", 10, 30),
        ("(ab){10}", 20, 60),
        ("(a{10}b){10}", 110, 500),
        ("a{2,30}", 30, 90),
        ("a{3,}", 3, 12),
        (r"\d{4}-\d{2}", 6, 30),
        ("[a-z]{10}", 10, 60),
        (r"[\]x]{10}", 10, 100),
        (r"\pL{10}", 4000, 8000),
        (r"\Qa{10}\E", 5, 20),
        ("(((", 3, 6),
        ("[[[[", 1, 30),
    ],
)
def test_states_go_up_with_groups_and_their_repetitions(pattern: str, least: int, most: int) -> None:
    assert least <= states_of(pattern) <= most


@given(st.text(alphabet="ab[](){}|*+?.^$\\pLdQE0123456789,-:é", max_size=40), st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_pattern_gives_an_answer_or_says_why_not(pattern: str, text: str) -> None:
    found = outcome("input.text.matches(input.pattern)", json.dumps({"text": text, "pattern": pattern}))

    assert isinstance(found, bool) or "the regular expression" in found


HOSTILE = [
    "(" * 4096,
    "(" * 2000 + "1" + ")" * 2000,
    "[" * 2000 + "]" * 2000,
    "{" * 4096,
    "-" * 4095 + "1",
    "!" * 4092 + "true",
    "1+" * 2000 + "1",
    "true&&" * 680 + "true",
    "true?1:" * 580 + "1",
    "input" + ".a" * 2000,
    "input" + "[0]" * 1300,
    "[" + "1," * 2000 + "1]",
    "{" + ",".join(f"{number}:1" for number in range(500)) + "}",
    "input.all(a," * 300 + "true" + ")" * 300,
    '"' * 4095,
    "'" + "\\u00e9" * 600 + "'",
    "`" * 4096,
    "1e" * 2000,
    "0x" * 2000,
    "\0" * 4096,
    "é" * 2048,
    "//" * 2000,
    "a." * 2000,
    "has(" * 1000,
    "b'\\xff'" + "+b'\\xff'" * 20,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_a_hostile_text_is_compiled_or_refused_in_little_time(text: str) -> None:
    began = time.process_time()
    found = problems(text)

    assert time.process_time() - began < CPU_S_MAX
    assert all(len(problem) < 500 for problem in found)


def test_pieces_of_the_language_in_any_order_never_crash_it() -> None:
    """A crash of the library would end the process, and this test with it."""
    chosen = random.Random(20260131)
    pieces = re.split(
        r"(\W)", "input.a.map(x, x + 1.5)[0] == {'k': b'x'}.k && !has(run.id) ? size('é') : -1u % steps.a.output"
    )
    pieces += ["\0", "@", "'", '"', "`", "'''", "r'", "\\", "😀", "in", "null", "matches('(')", "}}", "1e999", "0x"]
    for _ in range(2000):
        text = "".join(chosen.choices(pieces, k=chosen.randint(1, 30)))
        try:
            compile_expression(text, SCOPE).evaluate({"input": {"a": [1, "a", None]}, "run": {}, "steps": {}})
        except (Invalid, ExpressionFailed):
            continue


def test_a_deeply_nested_value_fails_and_ends_nothing() -> None:
    deep = "[" * 900 + "]" * 900

    try:
        found = value_of("input == input.map(x, x)", deep)
    except ExpressionFailed as error:  # by Python's own limit, which other tests of this process may have raised
        found = "nested too deep" in str(error)

    assert found is True
    assert "cannot be read" in reason("input == 1", "[" * 100_000 + "]" * 100_000)


def test_threads_evaluate_side_by_side() -> None:
    expressions = [compile_expression(f"input.filter(x, x > {least}).size()", SCOPE) for least in range(20)]
    values = {"input": list(range(100))}

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda expression: expression.evaluate(values), expressions * 20))
        matched = list(pool.map(lambda n: value_of("input.matches('^[0-9]+$')", f'"{n}"'), range(200)))
        compiled = list(
            pool.map(lambda n: compile_expression(f"input + {n}", SCOPE).evaluate({"input": 1}), range(200))
        )

    assert found == [99 - least for least in range(20)] * 20
    assert matched == [True] * 200
    assert compiled == [1 + n for n in range(200)]


def resident_kib() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4


def test_compiling_and_matching_leak_nothing() -> None:
    def use(rounds: int) -> None:
        for number in range(rounds):
            compile_expression(f"input.a.map(x, x + {number % 7}) == []", SCOPE)
            value_of("input.matches('^[a-z]+$') && null == null", '"abc"')

    use(300)
    before = resident_kib()
    use(1500)

    assert resident_kib() - before < 3000, "more than 2 KiB each"


LARGE = {"a": {"b": [1, 2], "c": "x", "n": None}, "k": "v", "filler": "x" * 5000}


@pytest.mark.parametrize(
    "text",
    [
        "input.a.b",
        "input.a",
        "input.a['b'][1]",
        "input.a.b[5]",
        "input.a.n",
        "input.a.z",
        "input.z.a",
        "input.k.z",
        "input.a.b.c",
        "input.k['z']",
        "has(input.a.b) && !has(input.a.z)",
        "has(input.z.a)",
        "has(input.k.a)",
        "has(input.a)",
        "input.a.b == input['a'].b && input.a.c == 'x'",
        "input.a.b.map(input, input + 1)",
        "size(input) == 3",
    ],
)
def test_what_is_read_along_a_path_of_a_large_value_is_what_is_there(text: str) -> None:
    def found(given_input: Any) -> Any:
        try:
            return compile_expression(text, SCOPE).evaluate({"input": given_input})
        except ExpressionFailed as error:
            return str(error)

    assert found(Raw(json.dumps(LARGE).encode())) == found(LARGE)


def test_of_a_large_value_only_what_is_read_is_decoded() -> None:
    broken = b'{"a": {"b": 1}, "big": ' + b"9" * 5000 + b"}"
    values = Values({"input": Raw(broken)})

    assert compile_expression("input.a.b", SCOPE).evaluate(values) == 1
    assert values.size_at("input", ("a", "b")) == 1
    with pytest.raises(ExpressionFailed, match=r"input cannot be read: Integer value out of range"):
        compile_expression("size(input)", SCOPE).evaluate(values)


@pytest.mark.parametrize(
    ("text", "given_input", "expected"),
    [
        ("input.a > 1", {"a": 1, "filler": "x" * MIB}, False),
        ("input.filler == ''", {"a": 1, "filler": "x" * MIB}, True),
        ("input.filter(x, x > 1).size() == 2", [1] * 20, False),
        ("input.exists(x, x.sku == 'a')", [{"sku": "a", "n": 1}] * 100, False),
        ("input.exists(x, x.sku == 'a')", [{"sku": "a", "n": 1}] * 10_000, True),
        ("input.all(x, input.all(y, x == y))", [1] * 99, True),
        ("input.matches('^[a-z]+$')", "abc", False),
        ("input[0].matches(input[1])", ["a" * 1000, "(a?){900}b"], True),
        ("input.all(x, -1 in input)", [1] * 2000, True),
    ],
)
def test_what_may_take_long_is_known_before(text: str, given_input: Any, expected: bool) -> None:
    values = Values({"input": Raw(json.dumps(given_input).encode())})

    assert compile_expression(text, SCOPE).is_heavy(values) is expected


@pytest.mark.parametrize(
    ("text", "given_input"),
    [
        ("input.all(x, input.all(y, x + y >= 0))", list(range(99))),
        ("input.all(x, -1 in input)", [1] * 5000),
        ("input.all(x, input == input)", [1] * 1500),
        ("input.all(x, duration(x) > duration('0s'))", ["1h"] * 2000),
        ("input.all(x, timestamp(x).getHours('Europe/Berlin') > 0)", ["2026-01-31T08:00:00Z"] * 3000),
        ("input.all(x, x.matches('^[0-9a-f]{8}$'))", ["0123abcd"] * 3000),
        ("input.text.matches('a[ab]{50}c')", {"text": "ab" * 20_000}),
        ("input.map(x, input).size()", [1] * 9000),
    ],
)
def test_nothing_that_takes_long_is_called_light(text: str, given_input: Any) -> None:
    values = Values({"input": Raw(json.dumps(given_input).encode())})
    expression = compile_expression(text, SCOPE)
    is_heavy = expression.is_heavy(values)

    began = time.process_time()
    with contextlib.suppress(ExpressionFailed):
        expression.evaluate(values)
    took = time.process_time() - began

    assert is_heavy or took < 0.05, took


def test_the_keys_of_a_large_object_are_read_once_for_all_elements_of_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    decode = values_module._keys

    def counted(value: Raw) -> dict[str, Raw]:
        nonlocal reads
        reads += 1
        return decode(value)

    monkeypatch.setattr(values_module, "_keys", counted)
    monkeypatch.setattr(values_module, "_kept", OrderedDict())
    expression = compile_expression("input.name + input.pad.left", SCOPE)
    large = Raw(json.dumps({"name": "n", "pad": {"left": "l", "right": "x" * 10_000}}).encode())
    assert {"nl"} == {expression.evaluate(Values({"input": large})) for _ in range(50)}
    assert 2 == reads  # the object, and the one in it
    others = [Raw(json.dumps({"name": str(n), "pad": {"left": "l" * 10_000}}).encode()) for n in range(9)]
    assert [f"{n}l" for n in range(9)] == [expression.evaluate(Values({"input": one}))[:2] for one in others]
    assert values_module.KEPT_MAX == len(values_module._kept)
