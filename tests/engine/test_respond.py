"""Steps that respond: what they answer stands in the log, and the run goes on."""

from __future__ import annotations

import pytest

from penstock.engine.run.commands import AppendEvent, BeginStep
from penstock.engine.run.event_payloads import Reply, StepFacts
from penstock.engine.run.events import StepStarted, decode, encode
from penstock.engine.run.kinds.respond import HEADERS_MAX, reply_in
from penstock.engine.run.payloads import payload_of
from penstock.engine.run.state import StepStatus
from penstock.engine.validation import parse, problems
from penstock.engine.warnings import Facts, warnings
from tests.engine.build import Play, dispatched, step, value, workflow

GIVEN = {"code": 201, "part": 201.0, "half": 200.5, "text": "a\r\nX: 1", "name": "Ada", "none": None}


def respond(step_id: str, *depends_on: str, **config: object) -> dict[str, object]:
    return {"id": step_id, "type": "respond", "depends_on": list(depends_on), "config": config}


def replies(play: Play, given: object = GIVEN) -> Reply | None:
    """The response of the only step, as it stands in the log."""
    [begin] = play.start(given)
    assert isinstance(begin, BeginStep)
    [append] = [command for command in play._begun(begin) if isinstance(command, AppendEvent)]
    event = decode(encode(append.event))
    match event:
        case StepStarted(payload=StepFacts(reply=found)):
            return found
        case _:
            return None


@pytest.mark.parametrize(
    ("config", "status", "headers", "body"),
    [
        ({}, 200, {}, None),
        ({"status": 404, "body": {"no": 1}}, 404, {}, {"no": 1}),
        ({"status": "${{ input.code }}"}, 201, {}, None),
        ({"status": "${{ input.part }}"}, 201, {}, None),
        ({"body": "Hello ${{ input.name }}"}, 200, {}, "Hello Ada"),
        ({"headers": {"X-A": "${{ input.code }}", "X-B": "b"}}, 200, {"X-A": "201", "X-B": "b"}, None),
        ({"headers": {"X-A": "${{ input.none }}"}}, 200, {}, None),
    ],
)
def test_what_is_answered_is_worked_out_as_the_step_begins(
    config: dict[str, object], status: int, headers: dict[str, str], body: object
) -> None:
    reply = replies(Play(workflow(respond("say", **config))))
    assert reply is not None
    assert (status, headers, body) == (reply.status, reply.headers, value(reply.body))


def test_it_completes_the_step_with_its_body_and_the_run_goes_on() -> None:
    play = Play(workflow(step("a"), respond("say", "a", body="${{ steps.a.output }}"), step("b", "say")))
    play.start()
    following = play.carry_out(play.complete("a", {"n": 1}))
    assert [("b", 1)] == dispatched(following)
    say = play.step("say")
    assert (StepStatus.COMPLETED, {"n": 1}) == (say.status, value(say.output))
    assert "running" == play.run.status


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"status": "${{ input.half }}"}, "config.status gives a number, not a status"),
        ({"status": "${{ input.name }}"}, "config.status gives a string, not a status"),
        ({"status": "${{ input.code - 2 }}"}, "config.status gives 199, not a status from 200 to 599"),
        ({"status": "${{ input.code + 399 }}"}, "config.status gives 600, not a status from 200 to 599"),
        ({"headers": {"X-A": "${{ input.text }}"}}, 'config.headers: "X-A" holds a line break'),
        ({"headers": {"X-A": "é ${{ input.name }}"}}, 'config.headers: "X-A" holds characters that are not ASCII'),
    ],
)
def test_what_cannot_be_answered_fails_the_step_for_good(config: dict[str, object], error: str) -> None:
    play = Play(workflow(respond("say", **config)))
    play.carry_out(play.start(GIVEN))
    assert "failed" == play.run.status
    assert error in (play.step("say").error or "")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"status": 199}, "config: status must be a whole number from 200 to 599, not 199"),
        ({"status": "200"}, 'config: status must be a whole number from 200 to 599, not "200"'),
        ({"status": True}, "config: status must be a whole number from 200 to 599, not true"),
        ({"headers": {"X-A": "a\nb"}}, 'config: headers: "X-A" holds a line break or another control character'),
        ({"headers": {"X A": "a"}}, 'config: headers: "X A" is no name of a header'),
        ({"headers": {"X-A": 1}}, 'config: headers: "X-A" must be a string, not a number'),
        ({"headers": {"X-A": "1", "x-a": "2"}}, 'config: headers: "x-a" is there twice'),
        ({"headers": {"Location": "/"}}, 'config: headers: "Location" is set by the service'),
        ({"headers": {"Content-Length": "1"}}, 'config: headers: "Content-Length" is set by the service'),
        ({"headers": {"Penstock-Seq": "1"}}, 'config: headers: "Penstock-Seq" is set by the service'),
        ({"headers": ["X"]}, "config: headers must be an object, not an array"),
        ({"headers": {"X": "x" * 8192}}, "config: headers: 8193 characters, 8192 are the most"),
        ({"code": 1}, 'config: unknown field "code"'),
    ],
)
def test_a_constant_fault_is_named_when_it_is_registered(config: dict[str, object], problem: str) -> None:
    assert [f'step "say": {problem}'] == problems({"name": "w", "steps": [respond("say", **config)]})


def test_too_many_headers_are_refused() -> None:
    headers = {f"X-{number}": "1" for number in range(HEADERS_MAX + 1)}
    found = problems({"name": "w", "steps": [respond("say", headers=headers)]})
    assert ['step "say": config: headers: 65 headers, 64 are the most'] == found


@pytest.mark.parametrize("field", ["task", "timeout", "retry", "with", "worker_group"])
def test_it_has_nothing_of_a_worker(field: str) -> None:
    [problem] = problems({"name": "w", "steps": [{**respond("say"), field: "x"}]})
    assert f'step "say": {field} is not for a step of this type' == problem


def test_only_an_event_that_applies_gives_a_response() -> None:
    play = Play(workflow(respond("say", body=1), step("b")))
    [begin, _] = play.start()
    before = play.run
    play.carry_out([begin])
    event = StepStarted(run_id=play.run.run_id, step_id="say", attempt_number=1, payload=StepFacts(reply=Reply()))
    assert Reply() == reply_in(event, before, play.run)
    assert None is reply_in(event, play.run, play.run)
    assert None is reply_in(event, None, play.run)
    assert [] == play.tell(event)


def test_a_large_body_is_read_back_from_its_event() -> None:
    play = Play(workflow(respond("say", body="x" * 5000), step("b")))
    [begin, _] = play.start()
    [append] = [command for command in play._begun(begin) if isinstance(command, AppendEvent)]  # type: ignore[arg-type]
    play.tell(append.event)
    kept = play.step("say").output_at
    assert kept is not None
    assert "x" * 5000 == value(payload_of(append.event))
    assert 5002 == kept.size


def test_a_condition_skips_it() -> None:
    play = Play(workflow({**respond("say"), "when": "input.code == 1"}))
    play.carry_out(play.start(GIVEN))
    assert {"say": "skipped"} == play.statuses()


def test_a_response_after_another_is_warned_of() -> None:
    document = {
        "name": "w",
        "steps": [respond("one"), step("a", "one"), respond("two", "a"), respond("other")],
    }
    found = warnings(parse(document), Facts({("work", None), ("t", None), ("a", None)}))
    assert ['step "two" responds after step "one": only the first response of a run counts'] == [
        text for text in found if "responds" in text
    ]
