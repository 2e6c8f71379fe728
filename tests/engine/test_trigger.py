from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from penstock.engine.errors import Invalid
from penstock.engine.trigger.trigger import CronSource, EventSource, Kind, Trigger, parse

BASE = {"name": "t", "workflow": "w"}


def problems(document: Any, kept_secret: str | None = None) -> list[str]:
    with pytest.raises(Invalid) as caught:
        parse(document, kept_secret)
    return list(caught.value.problems)


def test_each_kind_is_read_with_its_defaults() -> None:
    assert parse({**BASE, "cron": {"expression": "0 9 * * *"}}) == Trigger(
        "t", "w", cron=CronSource("0 9 * * *", "UTC")
    )
    assert parse({**BASE, "subject": {"subject": "orders.>"}}).kind is Kind.SUBJECT
    assert parse({**BASE, "event": {"subject": "event.a.*"}}).event == EventSource("event.a.*")
    assert parse({**BASE, "webhook": {}, "enabled": False, "input": [1]}) == parse(
        {**BASE, "webhook": {"secret": None}, "enabled": False, "input": [1], "event": None}
    )


def test_a_filters_value_is_any_json_and_null_is_one() -> None:
    for value in ("a", 1, 1.5, True, None, [1], {"a": 1}):
        found = parse({**BASE, "event": {"subject": "event.a", "field": "x.y", "value": value}}).event
        assert found is not None
        assert isinstance(found.value, Raw)
    without = parse({**BASE, "event": {"subject": "event.a", "field": "x.y"}}).event
    assert without is not None
    assert not isinstance(without.value, Raw)


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_a_trigger_is_an_object(document: object) -> None:
    assert [problem for problem in problems(document) if problem.startswith("a trigger must be an object")]


def test_every_problem_is_named_at_once() -> None:
    found = problems(
        {
            "name": "a b",
            "enabled": "yes",
            "cron": {"expression": "x", "timezone": "y", "z": 1},
            "event": {"value": 1},
            "q": 1,
        }
    )
    assert found == [
        'unknown field "q"',
        "workflow is missing",
        'name "a b" may hold only A-Z a-z 0-9 _ - and single dots between them',
        'enabled must be true or false, not "yes"',
        'cron: unknown field "z"',
        'cron: expression "x": wrong number of fields (five fields are needed, or six with seconds first)',
        'cron: timezone "y" is not known (write for example UTC or Europe/Amsterdam)',
        "event: subject is missing",
        "event: value needs a field to compare with",
        "exactly one of cron, subject, event, webhook, http is needed, given: cron, event",
    ]


def test_an_absent_timezone_hides_no_wrong_expression() -> None:
    expected = ['cron: expression "": wrong number of fields (five fields are needed, or six with seconds first)']
    for cron in ({"expression": ""}, {"expression": "", "timezone": None}):
        assert problems({**BASE, "cron": cron}) == expected
    assert parse({**BASE, "cron": {"expression": "0 9 * * *", "timezone": None}}) == Trigger(
        "t", "w", cron=CronSource("0 9 * * *", "UTC")
    )


def test_a_trigger_needs_a_source() -> None:
    assert problems(BASE) == ["exactly one of cron, subject, event, webhook, http is needed, given: none"]


@pytest.mark.parametrize(
    "subject",
    [
        "history.>",
        "schedule.x",
        "task.a.*",
        "sticky.x",
        "dead.x",
        "telemetry.x",
        "watch.x",
        "cron.x",
        "penstock.x",
        "_INBOX.>",
        "$JS.API.>",
    ],
)
def test_subjects_of_the_service_are_refused(subject: str) -> None:
    assert "belongs to the service itself" in problems({**BASE, "subject": {"subject": subject}})[0]


@pytest.mark.parametrize("subject", [">", "*.a", "a..b", ".a", "a.", "a b", "a.>.b", "", 5, "x" * 300])
def test_what_could_catch_the_services_own_or_is_no_subject_is_refused(subject: object) -> None:
    assert problems({**BASE, "subject": {"subject": subject}})


@pytest.mark.parametrize("subject", ["orders.new", "event", "events.a"])
def test_an_event_trigger_listens_to_events_only(subject: str) -> None:
    assert "must begin with event." in problems({**BASE, "event": {"subject": subject}})[0]


@pytest.mark.parametrize("secret", ["", "x" * 600, "a\nb", 5, False, ["hush"], "whsec_###", "whsec_"])
def test_a_bad_secret_is_refused_and_not_shown(secret: object) -> None:
    found = problems({**BASE, "webhook": {"secret": secret}})
    assert len(found) == 1
    assert found[0].startswith("webhook: secret")
    assert not [word for word in ("hush", "xxx", "###") if word in found[0]]


def test_true_stands_for_the_secret_that_is_kept() -> None:
    document = {**BASE, "webhook": {"secret": True}}
    assert parse(document, "hush").secret == "hush"
    assert parse({**BASE, "webhook": {}}, "hush").secret is None
    assert problems(document) == ["webhook: secret must be a string: there is no stored secret to keep"]


def test_no_representation_shows_the_secret() -> None:
    trigger = parse({**BASE, "webhook": {"secret": "hush"}})
    assert "hush" not in f"{trigger} {trigger!r} {trigger.webhook!r}"


def test_what_answers_add_is_ignored() -> None:
    assert parse({**BASE, "webhook": {}, "created_at": "x", "next_at": "y"}) == parse({**BASE, "webhook": {}})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"webhook": {}}, {"webhook": {"secret": "s"}}, True),
        ({"event": {"subject": "event.a"}}, {"event": {"subject": "event.a", "field": "x"}}, True),
        ({"event": {"subject": "event.a"}}, {"event": {"subject": "event.b"}}, False),
        ({"cron": {"expression": "0 0 * * *"}}, {"cron": {"expression": "0 0 * * *", "timezone": "UTC"}}, True),
        ({"cron": {"expression": "0 0 * * *"}}, {"cron": {"expression": "0 0 * * *", "timezone": "Asia/Tokyo"}}, False),
        ({"subject": {"subject": "event.a"}}, {"event": {"subject": "event.a"}}, False),
    ],
)
def test_what_counts_as_the_same_source(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert parse({**BASE, **one}).same_source(parse({**BASE, **other})) is same
