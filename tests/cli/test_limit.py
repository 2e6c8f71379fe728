from __future__ import annotations

import json

from tests.cli.conftest import Answer, Penstock, Service

IDLE = {"scope": "s", "kind": "runs", "limit": 5, "holders": [], "holders_total": 0, "waiting": [], "waiting_total": 0}
BUSY = {
    **IDLE,
    "key": "ac\x1bme",
    "limit": 1,
    "holders": [{"run_id": "r1", "since": "2026-01-01T00:00:00Z"}],
    "holders_total": 1,
    "waiting": [{"run_id": "r2", "step_id": "a", "place": 1, "reason": "concurrency", "priority": 7}],
    "waiting_total": 25,
    "override": {"limit": 1, "at": "2026-01-01T00:00:00Z", "by": "ann"},
    "registered": [{"workflow": "w", "version": "1", "limit": 5, "at": "2026-01-01T00:00:00Z"}],
}
RATE = {
    **IDLE,
    "kind": "rate",
    "limit": 10,
    "rate_limit": {"limit": 10, "per": "1s", "burst": 20},
    "tokens": 2.5,
    "keys": [{"key": "acme", "holders_total": 0, "waiting_total": 3}],
}


def test_list_shows_each_limit_on_a_line(penstock: Penstock, service: Service) -> None:
    service.on("GET /limits?limit=3", [BUSY, IDLE, RATE])
    out = penstock("limit", "list", "--limit", "3").out
    assert [
        "SCOPE  KIND  KEY       ALLOWED             IN USE    WAITING  OVERRIDDEN",
        r"s      runs  ac\x1bme  1                   1         25       ann",
        "s      runs  -         5                   0         0        -",
        "s      rate  -         10 in 1s, burst 20  2.5 left  0        -",
    ] == out.splitlines()


def test_show_names_who_holds_and_who_waits(penstock: Penstock, service: Service) -> None:
    service.on("GET /limits/s?key=acme&kind=runs", BUSY, BUSY)
    lines = penstock("limit", "show", "s", "--key", "acme", "--kind", "runs").out.splitlines()
    assert ["r1   -     2026-01-01T00:00:00Z", "", "waiting", "PLACE  RUN  STEP  PRIORITY"] == lines[-6:-2]
    assert ["1      r2   a     7", "and 5 more"] == lines[-2:]
    assert "registered by w  5" in lines
    assert any(line.startswith("overridden") and "by ann, for all keys" in line for line in lines)
    shown = json.loads(penstock("limit", "show", "s", "--key", "acme", "--kind", "runs", "--json").out)
    assert BUSY == shown


def test_show_of_a_rate_has_its_tokens_and_busiest_keys(penstock: Penstock, service: Service) -> None:
    service.on("GET /limits/s", RATE)
    lines = penstock("limit", "show", "s").out.splitlines()
    assert "tokens left  2.5" in lines
    assert ["busiest keys", "KEY   IN USE  WAITING", "acme  0       3"] == lines[-3:]


def test_set_and_reset_say_what_counts_now(penstock: Penstock, service: Service) -> None:
    service.on("PUT /limits/s", {**IDLE, "limit": 0, "override": {"limit": 0, "at": "2026-01-01T00:00:00Z"}})
    service.on("DELETE /limits/s", IDLE, Answer(b"the limit is not overridden\n", 404))
    assert (0, "s allows 0 (overridden)\n", "") == penstock("limit", "set", "s", "0")
    assert (0, "s allows 5 (as registered)\n", "") == penstock("limit", "reset", "s")
    assert (1, "", "Error: the limit is not overridden\n") == penstock("limit", "reset", "s")
    assert b'{"limit":0}' == service.requests[0].body


def test_set_of_a_rate_sends_its_span(penstock: Penstock, service: Service) -> None:
    service.on("PUT /limits/s?key=acme", RATE)
    assert 0 == penstock("limit", "set", "s", "10", "--per", "1s", "--burst", "20", "--key", "acme").code
    assert {"rate_limit": {"limit": 10, "per": "1s", "burst": 20}} == json.loads(service.requests[0].body)
    assert 2 == penstock("limit", "set", "s", "10", "--burst", "20").code
