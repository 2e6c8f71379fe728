"""Steps that are HTTP requests: what their task is, and that a secret is only its name."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.run.commands import BeginStep, DispatchTask
from penstock.engine.validation import problems
from tests.engine.build import Play, step, workflow

URL = "https://api.example.com/orders"
GIVEN = {
    "id": 7,
    "text": "${{ secret.KEY }}",
    "part": {"secret": "KEY"},
    "parts": [{"secret": "KEY"}],
    "nothing": None,
    "ok": [200],
}


def http(step_id: str = "call", *depends_on: str, **config: Any) -> dict[str, Any]:
    return {"id": step_id, "type": "http", "depends_on": list(depends_on), "config": {"url": URL, **config}}


def task_of(play: Play, given: object = GIVEN) -> DispatchTask:
    [begin] = play.start(given)
    assert isinstance(begin, BeginStep)
    [task] = play.carry_out([begin])
    assert isinstance(task, DispatchTask)
    return task


def request_of(config: dict[str, Any]) -> Any:
    return orjson.loads(bytes(task_of(Play(workflow(http(**config)))).input))


def test_its_task_is_the_reserved_one_with_its_config_as_input() -> None:
    task = task_of(Play(workflow(http(method="POST", body={"a": [1, None]}, timeout="10s", expect=[201, "4xx"]))))

    assert (task.task, task.step_type) == ("penstock.http", "http")
    assert orjson.loads(bytes(task.input)) == {
        "url": URL,
        "method": "POST",
        "body": {"a": [1, None]},
        "timeout": "10s",
        "expect": [201, "4xx"],
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"url": f"{URL}/${{{{ input.id }}}}"}, {"url": f"{URL}/7"}),
        ({"body": "${{ input }}"}, {"body": GIVEN}),
        ({"body": "${{ input.text }}"}, {"body": "${{ secret.KEY }}"}),
        ({"body": {"a": "n ${{ input.id }}"}}, {"body": {"a": "n 7"}}),
        ({"expect": "${{ input.ok }}"}, {"expect": [200]}),
        ({"headers": {"X": "${{ input.id }}"}}, {"headers": {"X": "7"}}),
        ({"headers": {"X": "a $${{ b", "Y": "c"}}, {"headers": {"X": "a ${{ b", "Y": "c"}}),
        ({"headers": {"X": "${{ input.nothing }}"}}, {}),
    ],
)
def test_templates_are_replaced_everywhere(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {"url": URL, **expected} == request_of(config)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("${{ secret.KEY }}", [{"secret": "KEY"}]),
        ("Bearer ${{secret.KEY}}", ["Bearer ", {"secret": "KEY"}]),
        ("${{ secret.A }}:${{ secret.B }}", [{"secret": "A"}, ":", {"secret": "B"}]),
        ("${{ input.id }}/${{ secret.A }}$${{", ["7/", {"secret": "A"}, "${{"]),
        ("${{ secret.A }}${{ input.parts }}", [{"secret": "A"}, '[{"secret":"KEY"}]']),
        ("${{ secret.A }}${{ input.text }}", [{"secret": "A"}, "${{ secret.KEY }}"]),
    ],
)
def test_a_secret_in_a_header_is_its_name(header: str, expected: list[Any]) -> None:
    assert request_of({"headers": {"X": header}})["headers"] == {"X": expected}


@pytest.mark.parametrize("name", ["text", "part", "parts"])
def test_nothing_that_an_input_holds_becomes_a_secret(name: str) -> None:
    """Text goes to the worker as text, which is never looked into."""
    request = request_of({"headers": {"X": f"${{{{ input.{name} }}}}", "Y": f"a ${{{{ input.{name} }}}}"}})

    assert all(isinstance(value, str) for value in request["headers"].values())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
        lambda e: st.lists(e) | st.dictionaries(st.text(), e),
    )
)
def test_no_value_of_an_expression_becomes_more_than_text(value: object) -> None:
    headers = {"X": "${{ input.v }}", "Y": "${{ secret.A }}${{ input.v }}", "Z": "${{ input.v }} ${{ input.v }}"}
    task = task_of(Play(workflow(http(headers=headers))), {"v": value})

    sent = orjson.loads(bytes(task.input))["headers"]

    assert isinstance(sent.get("X"), str) is (value is not None)
    assert [{"secret": "A"}, str] == [part if isinstance(part, dict) else type(part) for part in sent["Y"]]
    assert isinstance(sent["Z"], str)


def test_each_attempt_is_evaluated_and_ordered_again() -> None:
    play = Play(workflow({**http(), "retries": 1}))
    task_of(play)

    play.begin("call")
    play.fail("call", 1)
    [again] = play.fire("retry.call", "call", 2)

    assert isinstance(again, BeginStep)
    [task] = play.carry_out([again])
    assert isinstance(task, DispatchTask)
    assert (task.task, task.attempt) == ("penstock.http", 2)


@pytest.mark.parametrize("sticky", ["soft", "hard"])
def test_sticky_runs_have_no_part_in_it(sticky: str) -> None:
    """Neither does its worker bind the run, nor does it wait for the worker to which the run is bound."""
    play = Play(workflow(http("first"), step("own", "first"), http("last", "own"), sticky=sticky))
    task_of(play)
    play.begin("first", worker="http-1")
    play.complete("first", worker="http-1")
    assert play.run.bound is None

    play.begin("own", worker="mine")
    [begin] = [c for c in play.complete("own", worker="mine") if isinstance(c, BeginStep)]
    [task] = play.carry_out([begin])

    assert play.run.bound == "mine"
    assert isinstance(task, DispatchTask)
    assert task.worker is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": None}, "config: url is missing"),
        ({"url": 1}, "config: url must be a string, not a number"),
        ({"url": "ftp://x/"}, 'config: url "ftp://x/" must begin with http:// or https:// and a host'),
        ({"url": "http://u:p@x/"}, "must begin with http:// or https:// and a host, without user and password"),
        ({"url": "http:///x"}, "must begin with http:// or https:// and a host"),
        ({"url": "${{ secret.HOST }}"}, 'config: url: column 5: "secret" is no name that can be read here'),
        ({"body": {"a": ["x ${{ secret.KEY }}"]}}, 'config: body.a[0]: column 7: "secret" is no name'),
        ({"method": "get"}, "config: method must be one of GET HEAD POST PUT PATCH DELETE OPTIONS"),
        ({"method": "CONNECT"}, "config: method must be one of"),
        ({"timeout": "soon"}, "config: timeout"),
        ({"timeout": "0s"}, "config: timeout must be longer than 0s"),
        ({"expect": 200}, "config: expect must be an array, not a number"),
        ({"expect": []}, "config: expect has 0 entries, it must have 1 to 100"),
        ({"expect": [200, 99]}, "config: expect[1]: 99 is no status"),
        ({"expect": ["6xx"]}, 'config: expect[0]: "6xx" is neither a status nor "2xx"'),
        ({"headers": "${{ input.headers }}"}, "config: headers must be an object, not a string"),
        ({"headers": {"a b": "x"}}, 'config: headers: "a b" is no name of a header'),
        ({"headers": {"Host": "x"}}, 'config: headers: "Host" is set by who sends the request'),
        ({"headers": {"X": 1}}, 'config: headers: "X" must be a string, not a number'),
        ({"headers": {"X": "a\r\nb"}}, 'config: headers: "X" holds a line break or another control character'),
        ({"headers": {"X": "1", "x": "2"}}, 'config: headers: "x" is there twice'),
        ({"headers": {"X": "${{ secret.A + secret.B }}"}}, 'config: headers.X: column 5: "secret" is no name'),
        ({"headers": {"X": "${{ secret['A'] }}"}}, 'config: headers.X: column 5: "secret" is no name'),
        ({"headers": {"X": "${{ secret." + "A" * 129 + " }}"}}, '"secret" is no name'),
        ({"headers": {"X": "${{ inptu.a }}"}}, "inptu"),
        ({"headers": {"X": "${{ secret.A }} ${{ inptu.a }}"}}, "inptu"),
        ({"headers": {"X": "${{ input.a"}}, "has no"),
        ({"more": 1}, 'config: unknown field "more"'),
    ],
)
def test_what_is_wrong_with_a_request_is_named(given: dict[str, Any], problem: str) -> None:
    found = problems({"name": "w", "steps": [http(**given)]})

    assert any(problem in one and one.startswith('step "call": ') for one in found), found


@pytest.mark.parametrize("field", ["task", "with", "loop"])
def test_what_belongs_to_other_kinds_is_refused(field: str) -> None:
    document = {"name": "w", "steps": [{**http(), field: "x"}]}

    assert [f'step "call": {field} is not for a step of this type'] == problems(document)


def test_every_problem_is_told_at_once() -> None:
    config = {"url": "x", "method": "y", "timeout": "z", "expect": [1], "headers": {"Host": 1}}

    assert len(problems({"name": "w", "steps": [{"id": "call", "type": "http", "config": config}]})) == 6
