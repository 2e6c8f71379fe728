"""Labels of the runs of a trigger: templates over the event."""

from __future__ import annotations

import orjson
import pytest
from msgspec import Raw

from penstock.engine.errors import Invalid
from penstock.engine.trigger.labels import run_labels
from penstock.engine.trigger.trigger import Trigger, parse


def made(labels: dict[str, str], event: object) -> dict[str, str] | None:
    return run_labels(trigger(labels).labels, Raw(orjson.dumps(event)))


def trigger(labels: object) -> Trigger:
    return parse({"name": "t", "workflow": "w", "webhook": {}, "labels": labels})


def test_expressions_read_the_event_and_become_text() -> None:
    event = {"customer": {"id": 7, "name": "Ada"}, "vip": True, "none": None, "list": [1, "a"], "price": 1.5}
    labels = {
        "id": "${{ event.customer.id }}",
        "who": "c-${{ event.customer.name }}/${{ event.price * 2 }}",
        "vip": "${{ event.vip }}",
        "none": "${{ event.none }}",
        "list": "${{ event.list }}",
        "constant": "x:y",
        "literal": "$${{ event }}",
    }
    expected = {
        "id": "7",
        "who": "c-Ada/3.0",
        "vip": "true",
        "none": "null",
        "list": '[1,"a"]',
        "constant": "x:y",
        "literal": "${{ event }}",
    }
    assert expected == made(labels, event)


def test_a_trigger_without_labels_gives_none() -> None:
    assert made({}, {"a": 1}) is None
    assert run_labels(None, Raw(b"null")) is None


@pytest.mark.parametrize(
    ("text", "event", "problem"),
    [
        ("${{ event.customer }}", {}, "labels.k"),
        ("${{ event.customer }}", "text", "labels.k"),
        ("${{ event }}", "x" * 257, 'labels "k" has 257 characters, 256 is the most'),
        ("${{ event.map(a, event.map(b, a + b)) }}", list(range(2000)), "may take too long"),
    ],
)
def test_what_an_event_cannot_give_is_named(text: str, event: object, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        made({"k": text}, event)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"k": "${{ input.a }}"}, "labels.k: column"),
        ({"k": "${{ event. }}"}, "labels.k: column"),
        ({"k": "${{ event"}, "labels.k"),
        ({"a b": "x"}, 'labels: key "a b" may hold only'),
        ({"k": "x" * 257}, 'labels "k" has 257 characters, 256 is the most'),
        ({"k": 1}, 'labels "k" must be a string, not a number'),
        ({f"k{n}": "" for n in range(17)}, "labels has 17 entries, 16 is the most"),
        ("k", "labels must be an object, not a string"),
    ],
)
def test_templates_that_are_wrong_are_named(labels: object, problem: str) -> None:
    with pytest.raises(Invalid) as refused:
        trigger(labels)
    assert problem in str(refused.value)
