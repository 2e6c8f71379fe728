"""What a task function gives becomes JSON as it is, or is refused."""

from __future__ import annotations

import dataclasses
from datetime import date
from enum import Enum
from typing import Any

import msgspec
import orjson
import pytest

from penstock.worker.tasks.payloads import NoJson, as_json


class Point(msgspec.Struct, rename="camel", omit_defaults=True):
    x_at: float
    note: str | None = None


class Shape(msgspec.Struct, tag="shape"):
    points: list[Any]
    made: date


@dataclasses.dataclass
class Holder:
    held: Any


class Ratio(Enum):
    NONE = float("inf")
    HALF = 0.5


SHAPE = Shape([Point(1.5), Point(2.0, "b")], date(2026, 1, 2))
SHAPE_JSON = {"type": "shape", "points": [{"xAt": 1.5}, {"xAt": 2.0, "note": "b"}], "made": "2026-01-02"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SHAPE, SHAPE_JSON),
        ({"a": [SHAPE]}, {"a": [SHAPE_JSON]}),
        (Holder((SHAPE, None)), {"held": [SHAPE_JSON, None]}),
        (
            Shape([Holder(Point(1.0))], date(2026, 1, 2)),
            {"type": "shape", "points": [{"held": {"xAt": 1.0}}], "made": "2026-01-02"},
        ),
        ({"none": None, "half": Ratio.HALF, "text": "NaN null"}, {"none": None, "half": 0.5, "text": "NaN null"}),
    ],
)
def test_structs_are_written_as_dataclasses_are(value: Any, expected: Any) -> None:
    assert expected == orjson.loads(as_json(value))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "around",
    [
        lambda number: number,
        lambda number: [1, (2, number)],
        lambda number: {"a": {"b": number}},
        lambda number: Holder(number),
        lambda number: [Point(number)],
        lambda number: Shape([Holder({"x": number})], date(2026, 1, 2)),
    ],
)
def test_what_is_no_number_of_json_is_refused_wherever_it_stands(number: float, around: Any) -> None:
    with pytest.raises(NoJson, match=f"{number} is no number of JSON"):
        as_json(around(number))


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", Point(b"bytes"), Holder(object()), Ratio.NONE, {1: 2}, "\ud800"])  # type: ignore[arg-type]
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(NoJson):
        as_json(value)
