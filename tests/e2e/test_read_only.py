"""The service writes into its data directory and its temporary files only: everything else may be read-only, as in the
containers of examples/deploy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import PENSTOCK, Service
from tests.test_deploy_examples import healthcheck

# The test's folder stays writable, and it is TMPDIR and HOME, too. A root that is writable all the same is an error.
ENTER = """
mount --bind "$ROOM" "$ROOM" && mount -o remount,bind,ro / && cd "$ROOM" || exit 70
if touch /opt/written 2>/dev/null; then exit 71; fi
exec "$@"
"""


def own_mounts() -> bool:
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not own_mounts(), reason="this user can mount nothing")
def test_a_run_completes_where_everything_but_the_data_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environ = {"ROOM": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)}
    enter = ("unshare", "--mount", "sh", "-c", ENTER, "sh", PENSTOCK)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.md").write_text("# One\n\ntwo words\n")
    with Service(tmp_path, environ, enter, shards=1, http_workers=1) as service:
        ran = subprocess.run(
            [PENSTOCK, "demo", "--json", "--path", "texts"],
            cwd=tmp_path,
            env=service.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert 0 == ran.returncode, ran.stderr
        result = json.loads(ran.stdout)
        assert result["output"] == result["expected"]
        asked = subprocess.run(
            [sys.executable, *healthcheck()[1:]],
            env={**os.environ, "SERVICE_URL": service.url},
            capture_output=True,
            check=False,
        )
        assert 0 == asked.returncode
