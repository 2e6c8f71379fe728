"""`penstock run` beyond starting: what is sent to the service, and what is shown of its answers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Answer, Penstock, Service

SCHEDULED = {
    "run_id": "r1",
    "workflow_id": "w",
    "status": "scheduled",
    "run_at": "2099-01-01T00:00:00Z",
    "created_at": "2026-01-01T00:00:00Z",
    "input": {"n": 1},
}
SKIPPED = [{"run_id": "c", "reason": "it is \x1bcompleted"}]


def test_start_at_a_time_sends_it(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs", {"run_id": "r1", "status": "scheduled"})
    assert (0, "r1\n", "") == penstock("run", "start", "w", "--at", "2099-01-01T00:00:00Z")
    assert [{"workflow": "w", "run_at": "2099-01-01T00:00:00Z"}] == service.bodies("POST /runs")
    assert {"run_id": "r1", "status": "scheduled"} == json.loads(
        penstock("run", "start", "w", "--at", "+30s", "--json").out
    )


def test_a_scheduled_run_is_shown(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1/scheduled", SCHEDULED)
    assert ["run", "r1"] == penstock("run", "scheduled", "r1").out.splitlines()[0].split()
    assert "run at    2099-01-01T00:00:00Z" in penstock("run", "scheduled", "r1").out.splitlines()
    assert SCHEDULED == json.loads(penstock("run", "scheduled", "r1", "--json").out)


def test_unschedule_is_1_when_it_is_too_late(penstock: Penstock, service: Service) -> None:
    service.on(
        "DELETE /runs/r1/scheduled", {"status": "cancelled"}, Answer(b"run r1 is not scheduled: it is running\n", 400)
    )
    assert (0, "r1 cancelled\n", "") == penstock("run", "unschedule", "r1")
    assert (1, "", "Error: run r1 is not scheduled: it is running\n") == penstock("run", "unschedule", "r1")


def test_stats_within_a_time_say_how_far_back_they_go(penstock: Penstock, service: Service) -> None:
    buckets = [{"at": "2026-01-01T00:00:00.000000Z", "counts": {"failed": 7}}]
    cut = {"total": 7, "buckets": buckets, "complete": False, "since": "2026-01-02T03:04:05.678901Z"}
    service.on("GET /runs/stats?within_ms=100", cut, {"total": 7, "buckets": buckets, "complete": True})
    words = "counted back to 2026-01-02T03:04:05.678901Z: there may be older runs"
    assert words == penstock("run", "stats", "--within", "100").out.splitlines()[-1]
    assert "counted back" not in penstock("run", "stats", "--within", "100").out
    assert 2 == penstock("run", "stats", "--within", "5")[0]


def test_the_output_of_a_step_is_printed_as_it_is(penstock: Penstock, service: Service) -> None:
    service.on(
        "GET /runs/r1/steps/s1/output",
        Answer(b'{ "n" : [1] }'),
        Answer(b'step "s1" of run r1 has no output: it is queued\n', 404),
    )
    assert (0, '{ "n" : [1] }\n', "") == penstock("run", "output", "r1", "s1")
    assert (1, "", 'Error: step "s1" of run r1 has no output: it is queued\n') == penstock("run", "output", "r1", "s1")


def test_an_output_that_is_left_out_is_replaced_by_its_size(penstock: Penstock, service: Service) -> None:
    step = {"status": "completed", "attempts": 1, "output_bytes": 1048576}
    run = {
        "run_id": "r1",
        "workflow_id": "w",
        "status": "completed",
        "version": "1",
        "created_at": "x",
        "steps": {"s1": step},
        "input_bytes": 5000,
    }
    service.on("GET /runs/r1", run)
    shown = penstock("run", "status", "r1").out
    assert "1048576 bytes" in shown
    assert "input     5000 bytes" in shown.splitlines()


def test_cancel_by_workflow_sends_its_filters_and_shows_both_lists(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/cancel", {"cancelled": ["a", "b"], "skipped": SKIPPED, "total": 3, "dry_run": False})
    bounds = ("--after", "2026-01-01T00:00:00Z", "--before", "2026-01-02T01:00:00+01:00")
    done = penstock("run", "cancel", "--workflow", "w", "--status", "pending", *bounds)
    assert (0, "a cancelled\nb cancelled\nc skipped: it is \\x1bcompleted\n", "") == done
    assert [
        {
            "workflow_id": "w",
            "status": "pending",
            "after": "2026-01-01T00:00:00Z",
            "before": "2026-01-02T00:00:00Z",
            "limit": 1000,
        }
    ] == service.bodies("POST /runs/cancel")


@pytest.mark.parametrize(("option", "value"), [("--paused", True), ("--no-paused", False)])
def test_runs_are_chosen_by_whether_they_are_paused(
    penstock: Penstock, service: Service, option: str, value: bool
) -> None:
    answers = {"cancel": "cancelled", "pause": "paused", "resume": "resumed"}
    for verb, done in answers.items():
        service.on(f"POST /runs/{verb}", {done: ["a"], "skipped": [], "total": 1, "dry_run": False})
        assert 0 == penstock("run", verb, "--workflow", "w", option).code
        assert [{"workflow_id": "w", "paused": value, "limit": 1000}] == service.bodies(f"POST /runs/{verb}")
        refused = penstock("run", verb, "r1", option)
        assert (2, True) == (refused.code, "--paused can be given with --workflow only" in refused.err)


def test_a_dry_run_says_that_nothing_was_done(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/cancel", {"cancelled": ["a"], "skipped": [], "total": 1, "dry_run": True})
    service.on("POST /runs/retry", {"retried": [{"original_run_id": "a"}], "skipped": [], "total": 1, "dry_run": True})
    assert "a would be cancelled\n" == penstock("run", "cancel", "--workflow", "w", "--dry-run").out
    assert "a would be retried\n" == penstock("run", "retry", "--workflow", "w", "--mode", "rerun", "--dry-run").out
    assert [{"workflow_id": "w", "dry_run": True, "limit": 1000}] == service.bodies("POST /runs/cancel")
    assert [{"workflow_id": "w", "mode": "rerun", "once": True, "dry_run": True, "limit": 1000}] == service.bodies(
        "POST /runs/retry"
    )


def test_retry_prints_the_result_of_each_run(penstock: Penstock, service: Service) -> None:
    rerun = {"retried": [{"original_run_id": "a", "new_run_id": "b"}], "skipped": SKIPPED, "total": 2, "dry_run": False}
    replay = {"retried": [{"original_run_id": "a"}], "skipped": [], "total": 1, "dry_run": False}
    service.on("POST /runs/retry", rerun, replay, rerun)
    assert (
        "a again as b\nc skipped: it is \\x1bcompleted\n"
        == penstock("run", "retry", "--workflow", "w", "--mode", "rerun").out
    )
    assert "a resumed\n" == penstock("run", "retry", "--workflow", "w", "--mode", "replay").out
    assert rerun == json.loads(penstock("run", "retry", "--workflow", "w", "--mode", "rerun", "--json").out)


def test_retry_of_runs_replays_them_or_starts_them_anew(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/r1/retry", {"original_run_id": "r1"}, {"original_run_id": "r1", "new_run_id": "r9"})
    service.on("POST /runs/r2/retry", Answer(b"run r2 is completed\n", 409))
    assert (1, "r1 resumed\n", "Error: run r2 is completed\n") == penstock("run", "retry", "r1", "r2")
    assert (0, "r1 again as r9\n", "") == penstock("run", "retry", "r1", "--mode", "rerun")
    assert 0 == penstock("run", "retry", "r1", "--mode", "rerun", "--again").code
    sent = [{"mode": "replay"}, {"mode": "rerun", "once": True}, {"mode": "rerun"}]
    assert sent == service.bodies("POST /runs/r1/retry")


def test_rerun_skips_what_was_rerun_already_unless_again_is_given(penstock: Penstock, service: Service) -> None:
    reason = "already rerun as b"
    skipped = {
        "retried": [],
        "skipped": [{"run_id": "a", "reason": reason}],
        "total": 1,
        "dry_run": False,
        "remaining": 0,
    }
    service.on("POST /runs/retry", skipped)
    rerun = ("run", "retry", "--workflow", "w", "--mode", "rerun")
    assert (0, f"a skipped: {reason}\n", "") == penstock(*rerun)
    assert 0 == penstock(*rerun, "--again").code
    assert 0 == penstock("run", "retry", "--workflow", "w", "--mode", "replay").code
    assert [True, None, None] == [
        body.get("once") for body in service.bodies("POST /runs/retry") if isinstance(body, dict)
    ]


def test_cancel_with_compensation_asks_for_it_of_one_and_of_many(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/r1/cancel", {"run_id": "r1", "status": "compensating"})
    service.on("POST /runs/cancel", {"cancelled": ["a"], "skipped": [], "total": 1, "dry_run": False})

    one = penstock("run", "cancel", "r1", "--compensate", "--reason", "enough")
    many = penstock("run", "cancel", "--workflow", "w", "--compensate")

    assert ("r1 compensating\n", "a cancelled\n") == (one.out, many.out)
    assert [{"reason": "enough", "compensate": True}] == service.bodies("POST /runs/r1/cancel")
    assert [{"workflow_id": "w", "compensate": True, "limit": 1000}] == service.bodies("POST /runs/cancel")


def test_cancel_of_a_workflow_goes_through_all_parts(penstock: Penstock, service: Service) -> None:
    more = {"cancelled": ["a"], "skipped": SKIPPED, "total": 2, "dry_run": False, "next": "5.a", "remaining": 1}
    last = {"cancelled": ["b"], "skipped": [], "total": 1, "dry_run": False, "remaining": 0}
    service.on("POST /runs/cancel", more, last, more, last)
    assert (0, "a cancelled\nb cancelled\nc skipped: it is \\x1bcompleted\n", "") == penstock(
        "run", "cancel", "--workflow", "w"
    )
    assert [
        {"workflow_id": "w", "limit": 1000},
        {"workflow_id": "w", "limit": 1000, "cursor": "5.a"},
    ] == service.bodies("POST /runs/cancel")
    whole = {"cancelled": ["a", "b"], "skipped": SKIPPED, "total": 3, "dry_run": False}
    assert whole == json.loads(penstock("run", "cancel", "--workflow", "w", "--json").out)


def test_after_an_error_the_parts_before_it_are_printed(penstock: Penstock, service: Service) -> None:
    more = {
        "retried": [{"original_run_id": "a"}],
        "skipped": [],
        "total": 1,
        "dry_run": False,
        "next": "5.a",
        "remaining": 9,
    }
    service.on("POST /runs/retry", more, Answer(b"the broker is away\n", 503))
    assert (3, "a resumed\n", "Error: the broker is away\n") == penstock(
        "run", "retry", "--workflow", "w", "--mode", "replay"
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("cancel", "r1", "--workflow", "w"), "either ID... or --workflow"),
        (("cancel", "r1", "--dry-run"), "--dry-run can be given with --workflow only"),
        (("cancel", "r1", "--status", "all", "--after", "1h"), "--status, --after can be given with --workflow only"),
        (("cancel", "--workflow", "w", "--reason", "x"), "--reason can be given with ID... only"),
        (("cancel", "--workflow", "w", "--status", "failed"), "'failed' is not one of"),
        (("retry", "--workflow", "w"), "--workflow needs --mode: replay or rerun"),
        (("retry", "--mode", "rerun"), "either ID... or --workflow"),
        (("retry", "r1", "--workflow", "w"), "either ID... or --workflow"),
        (("retry", "r1", "--again"), "--again can be given with --mode rerun only"),
        (("retry", "r1", "--after", "1h"), "--after can be given with --workflow only"),
        (("signal", "r1"), "Missing argument"),
        (("signal", "r1", "go", "--data", "{"), "--input is not JSON"),
        (("start", "w", "--input", "Ada Lovelace"), """(a text needs quotes of its own: --input '"Ada Lovelace"')"""),
        (("start", "w", "--input", "{'n': 1}"), "(a file is given as --input @FILE)"),
        (("signal", "r1", "go", "--data", "@no-such-file"), "cannot be read"),
        (("status", "0123456"), "is too short: give the run's id, or at least the first 8 of its 32 characters"),
        (
            ("list", "--after", "noon"),
            "neither a time such as 2026-01-31T12:00:00Z nor a while ago such as 30m, 1h30m or 7d",
        ),
        (
            ("start", "w", "--at", "2027-01-31 12:00"),
            "neither a time such as 2027-01-31T12:00:00Z nor a while from now such as +30s",
        ),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    penstock: Penstock, service: Service, args: tuple[str, ...], told: str
) -> None:
    code, out, err = penstock("run", *args)
    assert (2, "") == (code, out)
    assert told in err
    assert [] == service.requests


def test_a_signal_may_hold_any_bytes(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\x00\xff{")
    service.on("POST /runs/r1/signal/go.on", {"status": "sent", "run_id": "r1", "signal": "go.on"})
    for data in ((), ("--data", '{"a": 1}'), ("--input", f"@{tmp_path / 'data'}")):
        assert (0, "r1 go.on sent\n", "") == penstock("run", "signal", "r1", "go.on", *data)
    assert [b"", b'{"a": 1}', b"\x00\xff{"] == [request.body for request in service.requests]


def test_a_decision_carries_its_token_and_what_is_said(penstock: Penstock, service: Service) -> None:
    service.on(
        "POST /runs/r1/approval/ok?action=approve&token=t0", {"status": "approved", "run_id": "r1", "step": "ok"}
    )
    service.on("POST /runs/r1/approval/ok?action=reject&token=t0", Answer(b"the token was used already\n", 409))
    said = penstock("run", "decide", "r1", "ok", "--token", "t0", "--comment", "fine", "--by", "ann")
    assert (0, "approved ok\n", "") == said
    assert [{"comment": "fine", "approved_by": "ann"}] == service.bodies(
        "POST /runs/r1/approval/ok?action=approve&token=t0"
    )
    assert (1, "", "Error: the token was used already\n") == penstock(
        "run", "decide", "r1", "ok", "--token", "t0", "--reject"
    )


A, B = "a" * 32, "b" * 32


def test_runs_are_paused_and_resumed_by_their_ids(penstock: Penstock, service: Service) -> None:
    at = "2026-01-01T00:00:00Z"
    service.on(f"POST /runs/{A}/pause", {"run_id": A, "status": "running", "paused_at": at})
    service.on(f"POST /runs/{A}/resume", {"run_id": A, "status": "running"})
    assert (0, f"{A} paused since {at}\n", "") == penstock("run", "pause", A, "--children")
    assert [{"children": True}] == service.bodies(f"POST /runs/{A}/pause")
    assert (0, f"{A} running\n", "") == penstock("run", "resume", A)


def test_what_cannot_be_paused_keeps_no_other_run_from_it(penstock: Penstock, service: Service) -> None:
    service.on(f"POST /runs/{A}/pause", Answer(f"run {A} is completed already\n".encode(), 409))
    service.on(f"POST /runs/{B}/pause", {"run_id": B, "status": "scheduled", "paused_at": "now"})
    answer = penstock("run", "pause", A, B)
    assert (1, f"{B} paused since now\n", f"Error: run {A} is completed already\n") == answer


def test_runs_of_a_workflow_are_paused_and_resumed(penstock: Penstock, service: Service) -> None:
    rest = {"skipped": SKIPPED, "total": 2, "dry_run": False}
    service.on("POST /runs/pause", {"paused": ["a"], **rest})
    service.on("POST /runs/resume", {"resumed": ["a"], **rest})
    paused = penstock("run", "pause", "--workflow", "w", "--status", "running")
    assert "a paused" == paused.out.splitlines()[0]
    assert "c skipped: it is " in paused.out
    assert [{"workflow_id": "w", "status": "running", "limit": 1000}] == service.bodies("POST /runs/pause")
    assert "a resumed" == penstock("run", "resume", "--workflow", "w").out.splitlines()[0]
    assert 2 == penstock("run", "pause", A, "--status", "running").code


def test_what_has_ended_is_pruned_by_age_status_and_workflow(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/prune", {"pruned": ["a", "b"], "skipped": SKIPPED, "total": 3, "dry_run": False})
    answer = penstock(
        "prune", "--older-than", "30d", "--status", "failed", "--status", "cancelled", "--workflow", "w", "--yes"
    )
    assert (0, "") == (answer.code, answer.err)
    assert "a pruned" == answer.out.splitlines()[0]
    assert "4 runs pruned, 2 skipped" == answer.out.splitlines()[-1]
    asked = service.bodies("POST /runs/prune")
    assert [("w", "failed", 1000), ("w", "cancelled", 1000)] == [
        (one["workflow_id"], one["status"], one["limit"]) for one in asked
    ]
    assert all(one["ended_before"] < "2099" for one in asked)


def test_pruning_needs_a_condition_and_a_yes(penstock: Penstock, service: Service) -> None:
    nothing, unasked = penstock("prune", "--yes"), penstock("prune", "--status", "all")
    assert (2, True) == (nothing.code, "--older-than" in nothing.err)
    assert (2, True) == (unasked.code, "--yes" in unasked.err)
    assert [] == service.bodies("POST /runs/prune")


def test_a_dry_run_of_pruning_asks_nobody(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/prune", {"pruned": ["a"], "skipped": [], "total": 1, "dry_run": True})
    answer = penstock("prune", "--label", "team=a", "--dry-run", "--json")
    assert (0, 1, ["a"]) == (answer.code, (found := msgspec.json.decode(answer.out))["pruned"], found["run_ids"])
    assert [{"dry_run": True, "labels": {"team": "a"}, "limit": 1000}] == service.bodies("POST /runs/prune")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("step", "skip", "r1", "s1", "--output", "{bad"), "--output is not JSON"),
        (("step", "skip", "r1", "s1", "--output", "bad"), "--output '\"bad\"'"),
        (("rerun", "r1", "--from", "s2", "--output", "s1={bad"), "--output STEP= is not JSON"),
        (("rerun", "r1", "--input", "{bad"), "--input is not JSON"),
    ],
)
def test_the_option_with_what_is_no_json_is_named(
    penstock: Penstock, service: Service, command: tuple[str, ...], named: str
) -> None:
    failed = penstock("run", *command)
    assert (2, "", True) == (failed.code, failed.out, named in failed.err)
    assert not service.requests
