from __future__ import annotations

from typing import Any

import orjson
import pytest

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.identifiers import is_run_id
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.trigger.trigger import EventSource, parse
from penstock.engine.trigger.trigger_events import matches, run_id, run_input


def event(**fields: Any) -> EventSource:
    found = parse({"name": "t", "workflow": "w", "event": {"subject": "event.a", **fields}}).event
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("wanted", "body"),
    [
        ("opened", {"a": {"b": "opened"}}),
        (5, {"a": {"b": 5}}),
        (5, {"a": {"b": 5.0}}),
        ("5", {"a": {"b": 5}}),
        ("true", {"a": {"b": True}}),
        (None, {"a": {"b": None}}),
        ("null", {"a": {"b": None}}),
        ({"c": 1}, {"a": {"b": {"c": 1}}}),
        ("[1,2]", {"a": {"b": [1, 2]}}),
    ],
)
def test_a_value_matches_as_json_or_as_its_text(wanted: object, body: object) -> None:
    assert matches(event(field="a.b", value=wanted), orjson.dumps(body))


@pytest.mark.parametrize(
    ("wanted", "body"),
    [
        ("opened", {"a": {"b": "closed"}}),
        ("opened", {"a": {}}),
        ("opened", {"a": "opened"}),
        (1, {"a": {"b": True}}),
        (True, {"a": {"b": 1}}),
        (None, {"a": {}}),
        (5, {"a": {"b": "5"}}),
        ("opened", ["opened"]),
    ],
)
def test_another_value_or_none_does_not_match(wanted: object, body: object) -> None:
    assert not matches(event(field="a.b", value=wanted), orjson.dumps(body))


def test_without_a_value_the_field_has_to_be_there() -> None:
    assert matches(event(field="a"), b'{"a": null}')
    assert not matches(event(field="a"), b'{"b": 1}')


def test_without_a_field_everything_matches_and_with_one_what_is_no_json_does_not() -> None:
    assert matches(event(), b"\xff")
    assert not matches(event(field="a"), b"\xff")
    assert not matches(event(field="a", value="x"), b'{"a":' + b"[" * 300 + b"]" * 300 + b"}")


def test_a_run_id_is_one_for_each_trigger_and_event() -> None:
    ids = {run_id(trigger, event) for trigger in "ab" for event in ("message g 1", "message g 2", "at g")}
    assert len(ids) == 6
    assert all(map(is_run_id, ids))
    assert run_id("a", "message g 1") in ids


def test_what_came_is_the_input_within_what_a_run_takes() -> None:
    trigger = parse({"name": "t", "workflow": "w", "webhook": {}})
    assert bytes(run_input(trigger, b' {"a": 1.50} ')) == b' {"a": 1.50} '
    assert bytes(run_input(trigger, b"x" * (PAYLOAD_BYTES_MAX - 2))) == b'"' + b"x" * (PAYLOAD_BYTES_MAX - 2) + b'"'
    with pytest.raises(TooLarge):
        run_input(trigger, b"x" * (PAYLOAD_BYTES_MAX - 1))
    with pytest.raises(Invalid, match="nested too deeply"):
        run_input(trigger, b"[" * 300 + b"]" * 300)
