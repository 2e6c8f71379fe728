"""`penstock doctor`, of a service as users start it: what it finds, and its exit codes."""

from __future__ import annotations

import orjson
import pytest

from penstock.cli.terminal.session import OK, REFUSED, UNAVAILABLE, USAGE
from tests.e2e.conftest import StartService

ANY_DISK = ("--ignore", "disk")  # that of the machine on which the tests run


@pytest.mark.parametrize(("fsync", "notes"), [("interval", ["fsync"]), ("always", [])])
def test_a_service_in_which_all_is_well_has_exit_code_0(
    start_service: StartService, fsync: str, notes: list[str]
) -> None:
    service = start_service(shards=1, http_workers=1, fsync=fsync)
    examined = service.penstock("doctor", *ANY_DISK, "--json")
    found = orjson.loads(examined.stdout)
    assert ([], OK) == (found["findings"], examined.returncode)
    assert notes == [one["check"] for one in found["notes"]]
    assert {"fsync", "engines", "index", "dead_letters"} <= {one["check"] for one in found["checks"] if one["ok"]}


def test_what_is_found_has_a_remedy_and_exit_code_1(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as client:
        client.register(orjson.dumps({"name": "w", "steps": [{"id": "a", "task": "nobody.serves"}]}))
        client.start("w")
        while "tasks_without_workers" not in {one.check for one in client.doctor().findings}:
            pass
    examined = service.penstock("doctor", *ANY_DISK)
    assert REFUSED == examined.returncode
    for said in ("note    fsync", "ok      engines", "set fsync = always", "nobody.serves", "start a worker for it"):
        assert said in examined.stdout
    ignored = service.penstock("doctor", *ANY_DISK, "--ignore", "fsync", "--ignore", "tasks_without_workers")
    assert (OK, True) == (ignored.returncode, "ignored tasks_without_workers" in ignored.stdout)
    assert "ok      fsync" in ignored.stdout
    assert USAGE == service.penstock("doctor", "--ignore", "everything").returncode
    service.stop()
    assert UNAVAILABLE == service.penstock("doctor").returncode
