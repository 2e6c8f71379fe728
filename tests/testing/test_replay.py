"""Replays: recorded runs once more, with the definition and the functions of today."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import Workflow, task
from penstock.engine.errors import Invalid
from penstock.engine.times import rfc3339
from penstock.testing import Replay, assert_same, replay
from tests.properties.recorded import histories, read

GOLDEN = {path.stem: path for path in histories()}
# Histories that were written by hand: one does not say its output, one has events that fit no execution.
BY_HAND = {
    "http": ['the run: output was null, is {"status":204,"headers":{},"body":null}'],
    "noise": ["step 'a': attempts was 2, is 1", "step 'a': output was {\"n\":1}, is null"],
}


def exported(name: str) -> dict[str, Any]:
    """A golden recording as an export has it."""
    found = read(GOLDEN[name])
    events = [{"seq": one.seq, "stored_at": rfc3339(one.at), **orjson.loads(bytes(one.event))} for one in found.records]
    return {"run_id": events[0]["run_id"], "definition": found.definition, "events": events}


def said(found: Replay) -> list[str]:
    return [str(one) for one in found.differences]


def changed(name: str, step_id: str, **fields: Any) -> dict[str, Any]:
    """The recorded definition with other fields of one step."""
    definition = copy.deepcopy(exported(name)["definition"])
    [step] = [one for one in definition["steps"] if one["id"] == step_id]
    step.update(fields)
    return definition


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_recording_is_the_same_today(name: str) -> None:
    assert said(replay(exported(name))) == BY_HAND.get(name, [])


def test_an_export_is_read_from_a_file_and_as_text(tmp_path: Path) -> None:
    body = orjson.dumps(exported("diamond"))
    path = tmp_path / "export.json"
    path.write_bytes(body)

    assert all(replay(source).same for source in (path, str(path), body, body.decode()))


@pytest.mark.parametrize("source", [b"no JSON", b"{}", {"run_id": "r", "definition": {}, "events": []}])
def test_what_is_no_export_is_refused(source: Any) -> None:
    with pytest.raises(Invalid):
        replay(source)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text("[]")

    with pytest.raises(Invalid, match=str(path)):
        replay(path)


def test_another_input_is_found() -> None:
    found = replay(exported("diamond"), changed("diamond", "left", **{"with": {"x": 1}}))

    assert said(found) == [
        f"step 'left': input was {_input('diamond', 'left')}, is {{\"x\":1}}",
    ]


def test_a_step_that_is_not_there_any_more_is_found_and_one_that_is_new_needs_an_answer() -> None:
    definition = changed("diamond", "left", id="west")
    [merge] = [one for one in definition["steps"] if one["id"] == "merge"]
    merge["depends_on"] = ["west", "right"]

    found = replay(exported("diamond"), definition)
    answered = replay(exported("diamond"), definition, answers={"west": {"words": 1.5}})

    assert "step 'left': status was \"completed\", is null" in said(found)
    assert any(one.startswith("step 'west': outcome was null, is \"no outcome was recorded") for one in said(found))
    assert found.run.status == "failed"  # by the timeout of its workflow
    assert answered.run.status == "completed"


def test_a_shorter_timeout_is_found() -> None:
    found = replay(exported("diamond"), changed("diamond", "split", timeout="1ms", retries=0))

    assert found.run.status == "failed"
    assert "step timeout exceeded (1ms)" in str(found)


def test_functions_are_called_with_the_input_of_today_and_compared() -> None:
    same = replay(exported("diamond"), tasks={"SPLIT": lambda given: {"parts": 2}})
    other = replay(exported("diamond"), tasks={"SPLIT": lambda given: {"parts": 3}})
    broken = replay(exported("diamond"), tasks={"SPLIT": _raises})

    assert same.same
    assert said(other) == ["function of 'SPLIT' in step 'split': output was {\"parts\":2}, is {\"parts\":3}"]
    assert said(broken) == [
        "function of 'SPLIT' in step 'split': output was {\"parts\":2}, is \"no output: ValueError: broken\""
    ]
    with pytest.raises(AssertionError, match="1 difference to its recording"):
        assert_same(other)


def test_functions_of_a_workflow_in_python_are_not_called() -> None:
    called = []

    @task("SPLIT")
    def split(given: dict[str, Any]) -> dict[str, Any]:
        called.append(given)
        return {}

    flow = Workflow("count.words")
    flow.step(split, id="split", input=flow.input)

    replay(exported("diamond"), flow)

    assert called == []


def _raises(given: Any) -> None:
    raise ValueError("broken")


def _input(name: str, step_id: str) -> str:
    """What a function is given today."""
    given = []
    [step] = [one for one in exported(name)["definition"]["steps"] if one["id"] == step_id]
    replay(exported(name), tasks={step["task"]: given.append})
    return orjson.dumps(given[0]).decode()
