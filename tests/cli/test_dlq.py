from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Answer, Penstock, Service

LETTER = {
    "seq": 7,
    "kind": "task",
    "at": "2026-01-01T00:00:00Z",
    "error": "no \x1bpaper",
    "subject": "task.t.r1",
    "run_id": "r1",
    "step_id": "a",
    "task": "t",
    "attempts": 3,
}
TRIGGER = {"seq": 5, "kind": "trigger", "at": "2026-01-01T00:00:00Z", "error": "x", "trigger": "daily"}


def test_list_follows_the_links_and_sends_its_filters(penstock: Penstock, service: Service) -> None:
    more = Answer(json.dumps([LETTER]).encode(), headers={"Link": '</dead-letters?limit=3&cursor=7>; rel="next"'})
    service.on("GET /dead-letters?run=r1&task=t&limit=3", more)
    service.on("GET /dead-letters?limit=3&cursor=7", [TRIGGER])
    out = penstock("dlq", "list", "--run", "r1", "--task", "t", "--limit", "3").out
    assert [
        "SEQ  WHEN                  KIND     ABOUT  STEP  ATTEMPTS  ERROR",
        r"7    2026-01-01T00:00:00Z  task     r1     a     3         no \x1bpaper",
        "5    2026-01-01T00:00:00Z  trigger  daily                  x",
    ] == out.splitlines()


def test_show_has_the_payload_whatever_it_is(penstock: Penstock, service: Service) -> None:
    service.on(
        "GET /dead-letters/7",
        {**LETTER, "payload": {"n": 1}},
        {**LETTER, "payload_base64": "/w=="},
        {**LETTER, "payload": 1},
    )
    assert 'payload   {"n": 1}' in penstock("dlq", "show", "7").out.splitlines()
    assert "payload (base64)  /w==" in penstock("dlq", "show", "7").out.splitlines()
    assert {**LETTER, "payload": 1} == json.loads(penstock("dlq", "show", "7", "--json").out)


def test_replay_and_discard_print_what_was_done_or_why_not(penstock: Penstock, service: Service) -> None:
    service.on(
        "POST /dead-letters/7/replay", {"run_id": "r1", "status": "running"}, Answer(b"run r1 is completed\n", 409)
    )
    service.on(
        "DELETE /dead-letters/7", {"seq": 7, "status": "discarded"}, Answer(b"dead letter 7 does not exist\n", 404)
    )
    assert (0, "r1 running\n", "") == penstock("dlq", "replay", "7")
    assert (1, "", "Error: run r1 is completed\n") == penstock("dlq", "replay", "7")
    assert (0, "7 discarded\n", "") == penstock("dlq", "discard", "7")
    assert (1, "", "Error: dead letter 7 does not exist\n") == penstock("dlq", "discard", "7")


@pytest.mark.parametrize("verb", ["show", "replay", "discard"])
@pytest.mark.parametrize("seq", ["0", "x", "-1"])
def test_a_sequence_that_is_none_is_wrong_usage(penstock: Penstock, service: Service, verb: str, seq: str) -> None:
    assert 2 == penstock("dlq", verb, "--", seq).code
    assert [] == service.requests
