"""`penstock trigger`: what each option becomes, and what is shown."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cli.conftest import Penstock, Service

MADE = {"name": "w", "workflow": "w", "enabled": True, "created_at": "2026-01-01T00:00:00Z"}
HOOK = {**MADE, "webhook": {"secret": True}}
CRON = {**MADE, "name": "c", "cron": {"expression": "0 9 * * *", "timezone": "UTC"}, "next_at": "2026-01-02T09:00:00Z"}
EVENT = {
    **MADE,
    "name": "e",
    "enabled": False,
    "event": {"subject": "event.a", "field": "x.y", "value": "5"},
    "input": {"n": 1},
}


@pytest.mark.parametrize(
    ("args", "document"),
    [
        (("--webhook",), {"name": "w", "webhook": {}}),
        (("--webhook", "--name", "n", "--secret", "s"), {"name": "n", "webhook": {"secret": "s"}}),
        (("--cron", "0 9 * * *"), {"name": "w-cron", "cron": {"expression": "0 9 * * *"}}),
        (
            ("--cron", "@", "--timezone", "Asia/Tokyo"),
            {"name": "w-cron", "cron": {"expression": "@", "timezone": "Asia/Tokyo"}},
        ),
        (("--http", "a/b"), {"name": "w-http", "http": {"path": "a/b"}}),
        (
            ("--http", "a/b", "--method", "PUT", "--auth", "none", "--timeout", "5s"),
            {"name": "w-http", "http": {"path": "a/b", "method": "PUT", "auth": "none", "timeout": "5s"}},
        ),
        (
            ("--event", "event.a", "--debounce", "5s", "--max-wait", "1m", "--key", "event.x"),
            {
                "name": "w-event",
                "event": {"subject": "event.a"},
                "debounce": {"period": "5s", "max_wait": "1m", "key": "event.x"},
            },
        ),
        (
            ("--webhook", "--batch", "10", "--period", "1m"),
            {"name": "w", "webhook": {}, "batch": {"size": 10, "period": "1m"}},
        ),
        (("--subject", "a.>", "--disabled"), {"name": "w-subject", "subject": {"subject": "a.>"}, "enabled": False}),
        (
            ("--event", "event.a", "--input", '{"n": 1}'),
            {"name": "w-event", "event": {"subject": "event.a"}, "input": {"n": 1}},
        ),
        (
            ("--event", "event.a", "--filter-field", "x.y", "--filter-value", "5"),
            {"name": "w-event", "event": {"subject": "event.a", "field": "x.y", "value": "5"}},
        ),
    ],
)
def test_create_sends_the_document_that_its_options_mean(
    penstock: Penstock, service: Service, args: tuple[str, ...], document: dict[str, Any]
) -> None:
    service.on("POST /triggers", MADE)
    assert (0, "") == (result := penstock("trigger", "create", "w", *args))[::2]
    assert result.out.startswith("created w")
    assert [{"workflow": "w", "enabled": True, **document}] == service.bodies("POST /triggers")


def test_a_trigger_of_another_kind_is_replaced_only_when_that_is_said(penstock: Penstock, service: Service) -> None:
    service.on("GET /triggers/c", CRON)
    service.on("POST /triggers", {**HOOK, "name": "c"})
    code, out, err = penstock("trigger", "create", "w", "--webhook", "--name", "c")
    assert (1, "") == (code, out)
    assert 'trigger "c" is there and of another kind (cron): give another --name, or --replace it' in err
    assert [] == service.bodies("POST /triggers")
    assert 0 == penstock("trigger", "create", "w", "--webhook", "--name", "c", "--replace")[0]
    assert 0 == penstock("trigger", "create", "w", "--cron", "0 9 * * *", "--name", "c")[0], "one of its own kind is"
    assert ["webhook", "cron"] == [
        next(key for key in body if key in ("webhook", "cron")) for body in service.bodies("POST /triggers")
    ]


def test_create_says_where_a_webhook_is_sent(penstock: Penstock, service: Service) -> None:
    service.on("POST /triggers", HOOK)
    assert (
        f"created w\nsend signed requests to {service.url}/v1/webhooks/w\n"
        == penstock("trigger", "create", "w", "--webhook").out
    )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "exactly one of"),
        (("--webhook", "--cron", "x"), "exactly one of"),
        (("--cron", "x", "--secret", "s"), "--secret is not for --cron"),
        (("--webhook", "--timezone", "UTC"), "--timezone is not for --webhook"),
        (("--subject", "a", "--filter-field", "x"), "--filter-field is not for --subject"),
        (("--webhook", "--input", "{"), "is not JSON"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    penstock: Penstock, service: Service, args: tuple[str, ...], words: str
) -> None:
    code, out, err = penstock("trigger", "create", "w", *args)
    assert (2, "") == (code, out)
    assert words in err
    assert [] == service.requests


def test_list_shows_each_kind_in_a_line(penstock: Penstock, service: Service) -> None:
    service.on(
        "GET /triggers",
        [CRON, EVENT, HOOK, {**MADE, "name": "s", "subject": {"subject": "a.>"}}, {**MADE, "webhook": {}}],
    )
    lines = [line.split(maxsplit=2) for line in penstock("trigger", "list").out.splitlines()]
    assert ["WHAT", "WORKFLOW", "ENABLED", "NEXT"] == lines[0][2].split()
    assert [
        ["c", "cron", ["0 9 * * * (UTC)", "w", "yes", "2026-01-02T09:00:00Z"]],
        ["e", "event", ['event.a where x.y is "5"', "w", "no"]],
        ["w", "webhook", ["secret of its own", "w", "yes"]],
        ["s", "subject", ["a.>", "w", "yes"]],
        ["w", "webhook", ["default secret", "w", "yes"]],
    ] == [[name, kind, re.split("  +", rest)] for name, kind, rest in lines[1:]]
    assert CRON == json.loads(penstock("trigger", "list", "--json").out)[0]


def test_show_has_everything_but_the_secret(penstock: Penstock, service: Service) -> None:
    service.on("GET /triggers/e", EVENT)
    lines = dict(line.split(maxsplit=1) for line in penstock("trigger", "show", "e").out.splitlines())
    assert {
        "trigger": "e",
        "enabled": "no",
        "event": 'event.a where x.y is "5"',
        "input": '{"n": 1}',
    }.items() <= lines.items()


@pytest.mark.parametrize(("verb", "enabled"), [("enable", True), ("disable", False)])
def test_enabling_gives_back_what_is_there(penstock: Penstock, service: Service, verb: str, enabled: bool) -> None:
    for trigger in (HOOK, CRON, EVENT):
        line = f"/triggers/{trigger['name']}"
        service.on(f"GET {line}", trigger)
        service.on(f"PUT {line}", {**trigger, "enabled": enabled})
        assert (0, f"{verb}d {trigger['name']}\n", "") == penstock("trigger", verb, str(trigger["name"]))
        assert [{**trigger, "enabled": enabled}] == service.bodies(f"PUT {line}")


def test_delete_and_fire_say_what_they_did(penstock: Penstock, service: Service) -> None:
    service.on("DELETE /triggers/w", {"name": "w", "status": "deleted"})
    service.on("POST /triggers/w/fire", {"run_id": "r1"})
    assert (0, "deleted w\n", "") == penstock("trigger", "delete", "w")
    assert (0, "r1\n", "") == penstock("trigger", "fire", "w", "--input", "[1]")
    assert [[1]] == service.bodies("POST /triggers/w/fire")


def test_a_trial_that_would_start_nothing_is_1(penstock: Penstock, service: Service) -> None:
    service.on(
        "POST /triggers/c/test",
        {"would_start": True, "workflow": "w", "version": "1", "input": None, "next": ["a", "b"]},
    )
    assert (0, "would start a run of w\nversion  1\ninput    null\nat       a\nat       b\n", "") == penstock(
        "trigger", "test", "c"
    )
    service.on(
        "POST /triggers/c/test", {"would_start": False, "workflow": "w", "problems": ["the trigger is disabled"]}
    )
    assert (1, "would start nothing\n  the trigger is disabled\n", "") == penstock("trigger", "test", "c")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--debounce", "5s"), "--debounce needs --max-wait, and no --period"),
        (("--debounce", "5s", "--max-wait", "1m", "--period", "1m"), "--debounce needs --max-wait, and no --period"),
        (("--batch", "5"), "--batch needs --period, and no --max-wait"),
        (("--batch", "5", "--period", "1m", "--max-wait", "1m"), "--batch needs --period, and no --max-wait"),
        (("--batch", "5", "--debounce", "5s"), "--debounce and --batch: only one of them is possible"),
        (("--key", "event.x"), "--key is for --debounce and --batch"),
        (("--max-wait", "1m"), "--max-wait is for --debounce and --batch"),
    ],
)
def test_options_of_batches_that_do_not_go_together_are_named(
    penstock: Penstock, args: tuple[str, ...], problem: str
) -> None:
    code, _, err = penstock("trigger", "create", "w", "--event", "event.a", *args)
    assert 2 == code
    assert problem in err


def test_show_says_how_several_events_become_one_run(penstock: Penstock, service: Service) -> None:
    service.on("GET /triggers/e", {**EVENT, "batch": {"size": 10, "period": "1m", "key": "event.who"}})
    shown = penstock("trigger", "show", "e").out
    assert re.search(r"^batch +with 10 events, 1m after the first at the latest$", shown, re.MULTILINE)
    assert re.search(r"^key +event.who$", shown, re.MULTILINE)
    service.on("GET /triggers/w", {**EVENT, "debounce": {"period": "5s", "max_wait": "1m"}})
    shown = penstock("trigger", "show", "w").out
    assert re.search(r"^debounce +5s after the last event, 1m after the first at the latest$", shown, re.MULTILINE)
    assert "key" not in shown


def test_a_trial_says_when_a_batch_would_start(penstock: Penstock, service: Service) -> None:
    trial = {"would_start": True, "workflow": "w", "input": [1], "when": "with 10 events, soon", "key": "7"}
    service.on("POST /triggers/e/test", trial)
    shown = penstock("trigger", "test", "e", "--input", "1").out
    assert re.search(r"^when +with 10 events, soon$", shown, re.MULTILINE)
    assert re.search(r"^key +7$", shown, re.MULTILINE)
    assert "waiting" not in shown


def test_show_says_what_waits_for_its_run(penstock: Penstock, service: Service) -> None:
    waiting = {"batches": 1, "events": 1, "since": "2026-01-01T00:00:00Z", "due_at": "2026-01-01T00:01:00Z"}
    service.on("GET /triggers/e", {**EVENT, "batch": {"size": 10, "period": "1m"}, "open_batches": waiting})
    assert re.search(
        r"^waiting +1 event in 1 batch until 2026-01-01T00:01:00Z$", penstock("trigger", "show", "e").out, re.MULTILINE
    )
    more = {**EVENT, "open_batches": {**waiting, "batches": 2, "events": 3}}
    service.on("GET /triggers/e", more)
    shown = penstock("trigger", "show", "e").out
    assert re.search(
        r"^waiting +3 events in 2 batches, the oldest one until 2026-01-01T00:01:00Z$", shown, re.MULTILINE
    )
