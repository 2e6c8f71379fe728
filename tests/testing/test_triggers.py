"""Triggers in the test kit: what starts runs, with which input, and when."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from penstock.engine.errors import CallFailed, Conflict, Denied, Invalid, NotFound
from penstock.engine.times import instant
from penstock.testing import TestService

ECHO = {"name": "echo", "steps": [{"id": "say", "task": "say"}]}
TYPED = {
    "name": "typed",
    "input_schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "steps": [{"id": "say", "task": "say"}],
}
START = "2026-03-27T12:00:00Z"  # a Friday; the clocks of Berlin change on Sunday


@pytest.fixture
def service() -> Iterator[TestService]:
    with TestService(ECHO, TYPED, tasks={"say": lambda given: given}, now=START) as started:
        yield started


def trigger(name: str, workflow: str = "echo", **source: Any) -> dict[str, Any]:
    return {"name": name, "workflow": workflow, **source}


def first(run: Any) -> Any:
    """What started a run, as its history says."""
    return run.events[0].payload["trigger"]


def test_a_cron_trigger_starts_a_run_at_each_of_its_times(service: TestService) -> None:
    cron = {"expression": "0 9 * * *", "timezone": "Europe/Berlin"}
    service.triggers.add(trigger("daily", cron=cron, input={"report": 1}))
    service.advance("3d")
    found = [(first(run), run.output) for run in service.runs]
    assert found == [
        ({"name": "daily", "kind": "cron", "at": at}, {"report": 1})
        for at in ("2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z")
    ]


def test_a_cron_trigger_that_is_removed_starts_nothing_more(service: TestService) -> None:
    service.triggers.add(trigger("hourly", cron={"expression": "0 * * * *"}))
    service.advance("90m")
    service.triggers.remove("hourly")
    service.advance("5h")
    assert 1 == len(service.runs)


def test_a_trigger_that_is_not_enabled_starts_nothing_but_by_hand(service: TestService) -> None:
    source = trigger("hourly", cron={"expression": "0 * * * *"}, input=7)
    service.triggers.add({**source, "enabled": False})
    service.advance("5h")
    assert [] == service.runs
    assert [7, "by hand"] == [service.triggers.fire("hourly").output, service.triggers.fire("hourly", "by hand").output]
    service.triggers.add(source)
    service.advance("1h")
    assert 3 == len(service.runs)


def test_a_run_that_waits_for_ever_ends_no_search_for_its_result(service: TestService) -> None:
    service.triggers.add(trigger("hourly", cron={"expression": "0 * * * *"}))
    service.register({"name": "stuck", "steps": [{"id": "a", "task": "nobody"}]})
    run = service.start("stuck")
    with pytest.raises(Conflict, match="no output yet"):
        run.result()


def test_an_event_starts_a_run_if_it_passes_the_filter(service: TestService) -> None:
    service.triggers.add(
        trigger(
            "paid",
            event={"subject": "event.order.*", "field": "state", "value": "paid"},
            labels={"n": "${{ event.n }}"},
        )
    )
    service.send_event("order.changed", {"state": "paid", "n": 1})
    service.send_event("order.changed", {"state": "open", "n": 2})
    service.send_event("order", {"state": "paid", "n": 3})
    (run,) = service.runs
    assert ({"state": "paid", "n": 1}, {"n": "1"}, "event") == (run.output, run.labels, first(run)["kind"])


def test_an_event_that_is_sent_twice_starts_one_run(service: TestService) -> None:
    service.triggers.add(trigger("paid", event={"subject": "event.>"}))
    for _ in range(2):
        service.send_event("paid", 1, event_id="payment-7")
    service.send_event("paid", 1, event_id="payment-8")
    assert 2 == len(service.runs)


def test_what_is_published_to_a_subject_starts_a_run_also_when_it_is_no_json(service: TestService) -> None:
    service.triggers.add(trigger("sensors", subject={"subject": "sensors.>"}))
    service.triggers.publish("sensors.a.b", {"t": 20})
    service.triggers.publish("sensors.c", b"cold")
    service.triggers.publish("sensors", {"t": 1})
    assert [{"t": 20}, "cold"] == [run.output for run in service.runs]


def test_a_webhook_is_signed_and_starts_one_run_for_each_delivery(service: TestService) -> None:
    service.triggers.add(trigger("shop", "typed", webhook={"secret": "only-the-shop-knows"}))
    service.triggers.webhook("shop", {"n": 1})
    body = orjson.dumps({"n": 2})
    signature = hmac.digest(b"only-the-shop-knows", body, "sha256").hex()
    headers = {"X-Signature-256": f"sha256={signature}", "Webhook-Id": "delivery-1"}
    for _ in range(2):
        service.triggers.webhook("shop", body, headers)
    assert [{"n": 1}, {"n": 2}] == [run.output for run in service.runs]
    assert {"webhook-id": "delivery-1"} == first(service.runs[1])["headers"]

    with pytest.raises(Denied, match="a valid signature is needed"):
        service.triggers.webhook("shop", {"n": 3}, headers)
    with pytest.raises(Invalid, match=r'input.n: "three" is not of type "integer"'):
        service.triggers.webhook("shop", {"n": "three"})
    with pytest.raises(NotFound, match='webhook "mill" does not exist'):
        service.triggers.webhook("mill", {})
    assert 2 == len(service.runs)


@pytest.mark.parametrize(("late", "denied"), [(0, False), (600, True)])
def test_a_signed_time_is_compared_with_the_clock_of_the_service(service: TestService, late: int, denied: bool) -> None:
    service.triggers.add(trigger("stripe", webhook={"secret": "s"}))
    time, body = int(instant(START)), b'{"id":"evt_1"}'
    signature = hmac.digest(b"s", f"{time}.".encode() + body, "sha256").hex()
    service.advance(late)
    try:
        service.triggers.webhook("stripe", body, {"Stripe-Signature": f"t={time},v1={signature}"})
    except Denied:
        assert denied
    assert (not denied) == bool(service.runs)


def test_a_webhook_ends_waits_and_starts_the_runs_of_event_triggers(service: TestService) -> None:
    wait = {"id": "w", "type": "wait_for_event", "config": {"event": "webhook.shop"}}
    service.register({"name": "waits", "steps": [wait]})
    run = service.start("waits")
    service.triggers.add(trigger("shop", webhook={"secret": "s"}))
    service.triggers.add(trigger("all", event={"subject": "event.webhook.*"}))
    service.triggers.webhook("shop", {"n": 1})
    assert ({"n": 1}, 3) == (run.output, len(service.runs))


def test_a_request_starts_the_run_of_its_route(service: TestService) -> None:
    service.triggers.add(trigger("signup", http={"path": "users/new", "auth": "none"}))
    run = service.triggers.request(
        "users/new", {"name": "Ada"}, query={"source": "web"}, headers={"Cookie": "c", "A": "b"}
    )
    assert run.output == {
        "method": "POST",
        "path": "users/new",
        "query": {"source": "web"},
        "headers": {"a": "b"},
        "body": {"name": "Ada"},
    }
    once = [service.triggers.request("users/new", n, idempotency_key="k").id for n in (1, 2)]
    assert once[0] == once[1]
    with pytest.raises(NotFound, match="no http trigger has the route GET users/new"):
        service.triggers.request("users/new", method="GET")
    with pytest.raises(Conflict, match='the route POST users/new is that of trigger "signup"'):
        service.triggers.add(trigger("other", http={"path": "users/new"}))


def test_a_debounce_starts_one_run_with_the_last_event_of_each_key(service: TestService) -> None:
    debounce = {"period": "10s", "max_wait": "25s", "key": "event.page"}
    service.triggers.add(trigger("index", event={"subject": "event.page"}, debounce=debounce))
    for n in range(6):  # home comes every 5 s: no rest of 10 s
        service.send_event("page", {"page": "home", "n": n})
        if n == 0:
            service.send_event("page", {"page": "about", "n": n})
        service.advance("5s")
    assert [{"page": "about", "n": 0}, {"page": "home", "n": 4}] == [run.output for run in service.runs]
    service.advance("1m")
    assert {"page": "home", "n": 5} == service.runs[-1].output


def test_a_batch_starts_a_run_when_it_is_full_or_late(service: TestService) -> None:
    service.triggers.add(trigger("rows", event={"subject": "event.row"}, batch={"size": 3, "period": "1m"}))
    for n in range(4):
        service.send_event("row", n)
    assert [[0, 1, 2]] == [run.output for run in service.runs]
    service.advance("1m")
    assert [[0, 1, 2], [3]] == [run.output for run in service.runs]


def test_an_event_counts_once_in_a_batch(service: TestService) -> None:
    service.triggers.add(trigger("rows", event={"subject": "event.row"}, batch={"size": 3, "period": "1m"}))
    for event_id in ("a", "a", "b"):
        service.send_event("row", event_id, event_id=event_id)
    assert [["a", "b"]] == [run.output for run in service.runs]


def test_a_trigger_with_another_source_drops_what_waits(service: TestService) -> None:
    batch = trigger("rows", event={"subject": "event.row"}, batch={"size": 3, "period": "1m"})
    service.triggers.add(batch)
    service.send_event("row", 1)
    service.triggers.add({**batch, "batch": {"size": 2, "period": "1m"}})  # the same source: it goes on
    service.send_event("row", 2)
    assert [[1, 2]] == [run.output for run in service.runs]
    service.send_event("row", 3)
    service.triggers.add({**batch, "event": {"subject": "event.line"}})
    service.advance("1h")
    assert 1 == len(service.runs)


@pytest.mark.parametrize(
    ("workflow", "problem"),
    [("typed", 'input: "x" is not of type "object"'), ("nobody", 'workflow "nobody" is not registered')],
)
def test_what_can_start_no_run_is_kept(service: TestService, workflow: str, problem: str) -> None:
    service.triggers.add(trigger("t", workflow, event={"subject": "event.e"}))
    service.send_event("e", "x")
    assert ("t", problem, b'"x"') == tuple(
        getattr(service.triggers.failed[0], name) for name in ("trigger", "error", "payload")
    )
    assert [] == service.runs


def test_a_run_of_a_trigger_fails_as_any_other(service: TestService) -> None:
    service.triggers.add(trigger("t", event={"subject": "event.e"}))
    service.fail("say", "no luck", failure_type="non_retriable")
    service.send_event("e")
    with pytest.raises(CallFailed, match="no luck"):
        _ = service.runs[0].output


def test_what_is_no_trigger_is_refused_with_every_problem(service: TestService) -> None:
    with pytest.raises(Invalid) as caught:
        service.triggers.add({"workflow": "echo", "cron": {"expression": "0 9 * *"}, "event": {"subject": "a"}})
    assert 3 <= len(caught.value.problems)
    with pytest.raises(NotFound, match='trigger "t" does not exist'):
        service.triggers.remove("t")
