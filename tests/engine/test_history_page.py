"""The events that docs/history.md shows are events of this version, with all their fields."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import orjson

from penstock.client.views import EventView
from penstock.engine.run.events import decode, encode, event_type

PAGE = Path(__file__).parents[2] / "docs" / "history.md"
SHOWN = re.findall(r'^\{"type": .*\}$', PAGE.read_text(), re.MULTILINE)


def test_every_event_of_the_page_is_read_and_written_as_it_is_shown() -> None:
    events = [decode(line.encode()) for line in SHOWN]

    assert [orjson.loads(encode(event)) for event in events] == [orjson.loads(line) for line in SHOWN]
    assert {event_type(event) for event in events} == {
        "step.started",
        "step.completed",
        "event.received",
        "child.ended",
        "planner.expanded",
        "workflow.started",
        "step.taken_over",
        "step.overridden",
    }


def test_the_client_shows_the_elements_that_the_page_shows() -> None:
    views = [msgspec.json.decode(orjson.dumps({**orjson.loads(line), "seq": 1}), type=EventView) for line in SHOWN]

    assert [view.item for view in views] == [orjson.loads(line).get("item", msgspec.UNSET) for line in SHOWN]
    assert 0 in {view.item for view in views}
