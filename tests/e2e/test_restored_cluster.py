"""A backup of a service on one host is restored to three brokers that replicate; two engines go on with its runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.broker.store import open_store
from penstock.client import Client
from tests.e2e.parts import all_completed, define, parts
from tests.support.server import NODES, cluster
from tests.support.service import PENSTOCK, Service, clean_environ

pytestmark = pytest.mark.timeout(150)

RUNS = 120
TASK = "moved.echo"


async def test_a_backup_of_one_host_goes_on_with_two_engines_over_three_brokers(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    (tmp_path / "a").mkdir()
    with Service(tmp_path / "a", shards=1, http_workers=1) as before, Client(before.url) as client:
        define(before, "moved", TASK)
        run_ids = client.bulk("moved", [b"%d" % number for number in range(RUNS)]).run_ids
        made = before.penstock("backup", str(backup))
        assert 0 == made.returncode, made.stderr
    with cluster(tmp_path) as nodes:
        await nodes.formed()
        environ = {"SERVICE_BROKER_URL": nodes.url, "SERVICE_REPLICAS": str(NODES)}
        first, again = (restored(backup, environ) for _ in range(2))
        assert 0 == first.returncode, first.stderr
        assert (1, True) == (again.returncode, "a broker without them" in again.stderr)
        with parts(tmp_path, environ, {"one": {}, "two": {}}) as running:
            running.worker(TASK)
            async with open_store(nodes.settings, "test") as store:
                streams = (await store.broker.api("STREAM.LIST"))["streams"]
                assert {NODES} == {one["config"]["num_replicas"] for one in streams}
                await all_completed(store, run_ids)
                more = running.bulk("moved", 10)
                await all_completed(store, more)
            assert running.alive()


def restored(backup: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [PENSTOCK, "restore", str(backup)]
    return subprocess.run(
        command, env={**clean_environ(), **environ}, capture_output=True, text=True, timeout=100, check=False
    )
