"""`penstock approval` and `penstock task`: what waits for people, and for workers."""

from __future__ import annotations

import json

from tests.cli.conftest import Answer, Penstock, Service

WAITING = {
    "run_id": "r1",
    "workflow_id": "pay-out",
    "step_id": "consent",
    "requested_at": "2026-01-01T00:00:00.5Z",
    "expires_at": "2026-01-03T00:00:00.5Z",
    "description": "Pay \x1bthis?",
}
QUEUES = [
    {"task": "hello", "waiting": 12, "in_hand": 3, "workers": 2, "oldest_at": "2026-01-01T00:00:00.5Z"},
    {"task": "train", "waiting": 0, "in_hand": 0, "workers": 0, "worker_group": "gpu"},
]


def test_what_waits_for_an_approval_is_listed_from_all_pages(penstock: Penstock, service: Service) -> None:
    link = {"Link": '</approvals?workflow=pay-out&cursor=r1.consent>; rel="next"'}
    service.on("GET /approvals?workflow=pay-out", Answer(json.dumps([WAITING]).encode(), headers=link))
    service.on("GET /approvals?workflow=pay-out&cursor=r1.consent", [{**WAITING, "run_id": "r2"}])
    assert [
        "RUN  STEP     WORKFLOW  ASKED                 EXPIRES               DESCRIPTION",
        r"r1   consent  pay-out   2026-01-01T00:00:00Z  2026-01-03T00:00:00Z  Pay \x1bthis?",
        r"r2   consent  pay-out   2026-01-01T00:00:00Z  2026-01-03T00:00:00Z  Pay \x1bthis?",
    ] == penstock("approval", "list", "--workflow", "pay-out").out.splitlines()


def test_an_operator_decides_by_the_services_own_right(penstock: Penstock, service: Service) -> None:
    done = {"status": "approved", "run_id": "r1", "step": "consent"}
    service.on(
        "POST /approvals/r1/consent", done, {**done, "status": "rejected"}, Answer(b"it is decided already\n", 409)
    )
    said = ("--comment", "fine", "--by", "ann")
    assert (0, "approved consent of r1\n", "") == penstock(
        "--token", "t", "approval", "approve", "r1", "consent", *said
    )
    assert (0, "rejected consent of r1\n", "") == penstock("approval", "reject", "r1", "consent")
    assert (1, "", "Error: it is decided already\n") == penstock("approval", "reject", "r1", "consent")
    sent = [{"action": "approve", "comment": "fine", "approved_by": "ann"}, {"action": "reject"}, {"action": "reject"}]
    assert sent == service.bodies("POST /approvals/r1/consent")
    assert "Bearer t" == service.requests[0].headers["authorization"]


def test_who_has_the_token_alone_decides_by_that(penstock: Penstock, service: Service) -> None:
    service.on(
        "POST /runs/r1/approval/consent?action=reject&token=t0",
        {"status": "rejected", "run_id": "r1", "step": "consent"},
    )
    assert (0, "rejected consent of r1\n", "") == penstock(
        "approval", "reject", "r1", "consent", "--token", "t0", "--by", "bob"
    )
    assert [{"approved_by": "bob"}] == service.bodies("POST /runs/r1/approval/consent?action=reject&token=t0")


def test_task_list_shows_what_waits_and_who_is_there(penstock: Penstock, service: Service) -> None:
    service.on("GET /tasks", QUEUES)
    assert [
        "TYPE   GROUP  WAITING  IN HAND  OLDEST                WORKERS",
        "hello         12       3        2026-01-01T00:00:00Z  2",
        "train  gpu    0        0                              0",
    ] == penstock("task", "list").out.splitlines()
    assert QUEUES == json.loads(penstock("task", "list", "--json").out)
