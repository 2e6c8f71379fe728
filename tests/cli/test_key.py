from __future__ import annotations

import json

from tests.cli.conftest import Answer, Penstock, Service

KEY = {"name": "ada", "scope": "read", "created_at": "2026-01-01T00:00:00Z"}


def test_a_new_key_stands_alone_on_stdout(penstock: Penstock, service: Service) -> None:
    service.on("POST /keys", {**KEY, "key": "penstock_x"})
    assert (0, "penstock_x\n", "") == penstock("key", "create", "ada", "--scope", "read")
    made = penstock("key", "create", "ada", "--scope", "read", "--workflow", "o*", "--expires", "90d", "--json")
    assert "penstock_x" == json.loads(made.out)["key"]
    assert [{"name": "ada", "scope": "read"}, {"name": "ada", "scope": "read", "workflow": "o*", "expires": "90d"}] == [
        json.loads(request.body) for request in service.requests
    ]


def test_a_scope_that_does_not_exist_is_wrong_usage_and_not_sent(penstock: Penstock, service: Service) -> None:
    assert 2 == penstock("key", "create", "ada", "--scope", "root").code
    assert 2 == penstock("key", "create", "ada").code
    assert [] == service.requests


def test_keys_are_listed_and_revoked(penstock: Penstock, service: Service) -> None:
    service.on("GET /keys", [KEY, {**KEY, "name": "ben", "workflow": "o*", "by": "ada"}])
    service.on("DELETE /keys/ben", {"name": "ben", "status": "revoked"})
    _, ada, ben = penstock("key", "list").out.splitlines()
    assert ["ada", "read", "*"] == ada.split()[:3]
    assert ["ben", "read", "o*"] == ben.split()[:3]
    assert (0, "ben revoked\n", "") == penstock("key", "revoke", "ben")


def test_a_refusal_is_shown(penstock: Penstock, service: Service) -> None:
    service.on("POST /keys", Answer(b"the first key must have scope admin\n", 409))
    assert (1, "", "Error: the first key must have scope admin\n") == penstock("key", "create", "a", "--scope", "read")


def test_the_audit_log_is_shown(penstock: Penstock, service: Service) -> None:
    entry = {"at": "2026-01-01T00:00:00Z", "who": "ada", "what": "cancelRun", "on": "/runs/x/cancel", "from": "::1"}
    service.on("GET /audit?limit=2", [{**entry, "outcome": "done", "status": 200}, {**entry, "outcome": "unknown"}])
    _, done, unknown = penstock("audit", "--limit", "2").out.splitlines()
    assert done.endswith("ada  cancelRun  /runs/x/cancel  ::1   done (200)")
    assert unknown.endswith("unknown")
    assert "::1" == json.loads(penstock("audit", "--limit", "2", "--json").out)[0]["from"]
