"""The examples of docs/http.md and docs/cli.md that pause runs and import them print what the pages show."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.client import AsyncClient, Client, ToPause
from penstock.testing import assert_same, replay
from penstock.worker import Worker
from tests.e2e.conftest import StartService
from tests.support.pages import carry_out
from tests.support.service import Service
from tests.support.waiting import until_true

DOCS = Path(__file__).parents[2] / "docs"
CLI = (DOCS / "cli.md").read_text()
RUN_ID, TIME = re.compile(r"\b[0-9a-f]{32}\b"), re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
GREET = b'{"name": "greet", "steps": [{"id": "a", "task": "hello"}]}'

pytestmark = pytest.mark.timeout(120)


def section(title: str) -> list[tuple[str, str]]:
    """The commands under this heading of docs/http.md, each with what is shown below it."""
    text = (DOCS / "http.md").read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```\n(\$ .*?)```", text, re.DOTALL)
    parts = (part.partition("\n") for part in block.removeprefix("$ ").split("\n$ "))
    return [(command, shown.strip()) for command, _, shown in parts]


def alike(text: str, run_ids: list[str]) -> str:
    """The text without times, and with a name for each of these ids."""
    for run_id in run_ids:
        text = text.replace(run_id, "ID")
    return TIME.sub("TIME", text.strip())


def curl(command: str, service: Service) -> str:
    words = shlex.split(command.replace("localhost:8080", service.url.removeprefix("http://")))
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout


async def started(api: Client, count: int) -> list[str]:
    """Runs of `greet` that are listed as running."""
    api.register(GREET)
    run_ids = [api.start("greet", b"1").run_id for _ in range(count)]
    await until_true(lambda: len(list(api.runs(status="running"))) == count)
    return run_ids


async def test_one_run_is_paused_and_goes_on(service: Service) -> None:
    shown = section("Pause")
    assert ["pause", "resume"] == [command.rpartition("/")[2] for command, _ in shown]
    with service.client() as api:
        (run_id,) = await started(api, 1)
        for command, answer in shown:
            printed = curl(RUN_ID.sub(run_id, command), service)
            assert alike(answer, RUN_ID.findall(answer)) == alike(printed, [run_id])
        assert api.get_run(run_id).paused_at is None


async def test_many_runs_are_paused_and_go_on(service: Service) -> None:
    with service.client() as api:
        run_ids = await started(api, 2)
        for command, answer in section("Pause many"):
            printed = curl(command, service)
            assert alike(answer, RUN_ID.findall(answer)) == alike(printed, run_ids)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="no curl or jq here")
async def test_paused_runs_are_found_and_counted(service: Service) -> None:
    with service.client() as api:
        await started(api, 2)
        shown = await carry_out("http.md", "runs?paused=true", service.url)
        assert shown.page == shown.printed
        assert [1, 1] == [len(list(api.runs(paused=paused))) for paused in (True, False)]
        assert (1, 1) == (api.run_stats(paused=True).total, api.run_stats(paused=False, bucket="1h").total)
    async with AsyncClient(service.url) as client:
        assert ["greet"] == [run.workflow_id async for run in client.runs(paused=True)]
        assert 1 == (await client.run_stats(paused=True, workflow="greet")).total
        assert 1 == (await client.resume_all(ToPause(workflow_id="greet", paused=True, dry_run=True))).total


async def test_the_command_line_lists_paused_runs(service: Service) -> None:
    (command,) = re.findall(r"^penstock (run list --paused) ", CLI, re.MULTILINE)
    with service.client() as api:
        first, other = await started(api, 2)
        api.pause(first)
        lists = [service.penstock(*shlex.split(one)).stdout for one in (command, "run list --no-paused")]
        assert [(True, False), (False, True)] == [(first in text, other in text) for text in lists]
        assert "running, paused" in lists[0]
        counts = service.penstock("run", "stats", "--paused").stdout.splitlines()
        assert (["FROM", "RUNNING", "TOTAL"], ["1", "1"]) == (counts[0].split(), counts[1].split()[-2:])
        ran = service.penstock("run", "resume", "--workflow", "greet", "--paused")
        assert (0, f"{first} resumed\n", "") == (ran.returncode, ran.stdout, ran.stderr)


async def test_the_command_line_pauses_runs_and_lets_them_go_on(service: Service) -> None:
    commands = [
        line.partition("#")[0] for line in re.findall(r"^penstock (run (?:pause|resume) .*)$", CLI, re.MULTILINE)
    ]
    assert 3 == len(commands)
    with service.client() as api:
        first, other = await started(api, 2)
        paused = []
        for command in commands:
            ran = service.penstock(*shlex.split(command.replace("01a201fd6c48", first)))
            assert (0, "") == (ran.returncode, ran.stderr)
            paused.append({run_id for run_id in (first, other) if api.get_run(run_id).paused_at is not None})
    assert [{first}, set(), {first, other}] == paused


async def test_a_run_of_another_service_is_imported(start_service: StartService, tmp_path: Path) -> None:
    (export, _), (import_, shown) = section("Import a run")
    here, staging = (start_service(shards=1, http_workers=1) for _ in range(2))
    worker = Worker(broker_url=here.broker_url, grace_s=1)
    worker.task("hello")(lambda value: value)
    with here.client() as api, staging.client() as there:
        api.register(GREET)
        async with worker.running():
            run_id = api.start("greet", b"1").run_id
            await until_true(lambda: api.get_run(run_id).status == "completed")
        kinds = [event.type for event in api.events(run_id)]
        if "step.started" in kinds:  # it took more than 25 ms
            shown = shown.replace(", 3 events", ", 4 events")
        path = str(tmp_path / "run.json")
        ran = here.penstock(*_words(RUN_ID.sub(run_id, export), path))
        assert 0 == ran.returncode
        assert_same(replay(path, GREET, tasks={"hello": lambda value: value}))
        ran = here.penstock(*_words(import_.replace("https://staging.example", staging.url), path))
        assert (0, RUN_ID.sub(run_id, shown)) == (ran.returncode, ran.stdout.strip())
        assert (True, api.export(run_id)) == (there.get_run(run_id).imported, there.export(run_id))


def _words(command: str, path: str) -> list[str]:
    return shlex.split(command.replace("run.json", path))[1:]
