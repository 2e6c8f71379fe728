from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, Penstock, Service


def test_send_says_where_the_event_stands(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    service.on("POST /events/order.paid", {"seq": 7})
    file = tmp_path / "order.json"
    file.write_text('{"n": 1.10}')
    assert (0, "event.order.paid 7\n", "") == penstock("event", "send", "order.paid")
    assert 0 == penstock("event", "send", "order.paid", "--input", "[1]").code
    assert 0 == penstock("event", "send", "order.paid", "--input", f"@{file}").code
    assert [b"null", b"[1]", b'{"n": 1.10}'] == [request.body for request in service.requests]
    assert {"seq": 7} == json.loads(penstock("event", "send", "order.paid", "--json").out)


def test_a_key_is_sent_along(penstock: Penstock, service: Service) -> None:
    service.on("POST /events/e", {"seq": 7})
    penstock("event", "send", "e", "--idempotency-key", "k")
    penstock("event", "send", "e")
    assert ["k", None] == [request.headers.get("idempotency-key") for request in service.requests]


def test_a_refusal_is_told(penstock: Penstock, service: Service) -> None:
    service.on("POST /events/cron.x", Answer(b"event name ...\n", 400))
    assert (1, "", "Error: event name ...\n") == penstock("event", "send", "cron.x")


@pytest.mark.parametrize("given", ["{", "paid"])
def test_what_is_no_json_is_wrong_usage_and_not_sent(penstock: Penstock, service: Service, given: str) -> None:
    assert 2 == penstock("event", "send", "e", "--input", given).code
    assert [] == service.requests
