"""`penstock system` and `penstock run checkpoint`, of a service as users start it."""

from __future__ import annotations

import orjson

from tests.e2e.conftest import StartService


def test_the_broker_and_the_settings_of_a_service(start_service: StartService) -> None:
    service = start_service(webhook_secret="tell-nobody", shards=1, http_workers=1, fsync="always")
    said = service.penstock("system", "broker")
    assert 0 == said.returncode, said.stderr
    assert "embedded, fsync always" in said.stdout
    assert "WORKFLOW_HISTORY" in said.stdout
    found = orjson.loads(service.penstock("system", "broker", "--json").stdout)
    [node] = found["nodes"]
    assert len(found["streams"]) == node["leads"] > 10
    assert "bytes" in said.stdout
    settings = {one["key"]: one for one in orjson.loads(service.penstock("system", "settings", "--json").stdout)}
    assert ("always", "(set)") == (settings["fsync"]["value"], settings["webhook_secret"]["value"])
    assert ("flag", "default") == (settings["fsync"]["source"], settings["max_store_bytes"]["source"])
    assert "tell-nobody" not in service.penstock("system", "settings").stdout
    missing = service.penstock("run", "checkpoint", "0" * 32, "a")
    assert (1, True) == (missing.returncode, "does not exist" in missing.stderr or "no checkpoint" in missing.stderr)
