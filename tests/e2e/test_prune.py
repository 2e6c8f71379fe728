"""`penstock prune` against a whole service, as docs/cli.md shows it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.client import Client, ToPrune
from tests.e2e.conftest import StartService
from tests.support.waiting import until_true

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMANDS = [line.partition("#")[0] for line in re.findall(r"^penstock prune .*$", PAGE, re.MULTILINE)]

pytestmark = pytest.mark.timeout(240)


def test_the_commands_of_the_page_remove_what_they_say(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    assert 3 == len(COMMANDS)
    with Client(service.url) as api:
        api.register(b'{"name": "greet", "steps": [{"id": "a", "task": "hello"}]}')
        old, running = api.start("greet", b"1").run_id, api.start("greet", b"2").run_id
        api.cancel(old)
        ended = ToPrune(workflow_id="greet", dry_run=True)
        asyncio.run(until_true(lambda: api.prune(ended).pruned == [old]))
        for command in COMMANDS:  # nothing is that old
            code, out = _penstock(service.url, command.replace("--yes", "") + " --yes")
            assert (0, "0 runs") == (code, out.splitlines()[-1][:6])
        young = re.sub(r"\d+d", "0s", COMMANDS[1])
        assert 2 == _penstock(service.url, young)[0], "nobody can be asked here"
        found = msgspec.json.decode(_penstock(service.url, f"{young} --dry-run --json")[1])
        assert (1, [old], True) == (found["pruned"], found["run_ids"], found["dry_run"])
        code, out = _penstock(service.url, f"{young} --yes")
        assert (0, [f"{old} pruned", "1 run pruned, 0 skipped"]) == (code, out.splitlines())
        assert [running] == [one.run_id for one in api.runs(workflow="greet")]


def _penstock(url: str, command: str) -> tuple[int, str]:
    """Exit code and output of a command, without a terminal."""
    program = [sys.executable, "-m", "penstock.cli.main", *shlex.split(command)[1:]]
    environ = {**os.environ, "SERVICE_URL": url}
    done = subprocess.run(program, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout
