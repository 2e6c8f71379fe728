"""docs/tutorial.md, carried out from `pip install` on: its files, its commands in their order, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock.client import Client
from penstock.client.views import RunView
from tests.support.service import STOP_S_MAX, clean_environ, free_port
from tests.support.waiting import until_found
from tests.support.wheel import build_wheel, dependencies

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text()
FILE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SERVE = "penstock serve"
WORKER = re.compile(r"python \w+\.py")
ASSIGNMENT = re.compile(r"(\w+)=\$\((.*)\)")
# What differs from run to run, and the width of columns.
PASSING = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\b[\w.-]+-\d+-[0-9a-f]{6}\b"), "<worker>"),
    (re.compile(r"\b[\d.]+ ?m?s\b"), "<duration>"),
    (re.compile(r" +"), " "),
)
LINES_MAX, COMMANDS_MAX = 15, 3  # to the first result

pytestmark = pytest.mark.timeout(240)


def lasting(text: str) -> str:
    for pattern, word in PASSING:
        text = pattern.sub(word, text)
    return text.strip()


class Reader:
    """Who follows the page: a directory, a virtualenv in it, and a terminal each for the service and the worker."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self._service: subprocess.Popen[bytes] | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        port, broker_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        programs = virtualenv(folder)
        self.environ = {
            **clean_environ(),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "SERVICE_URL": self.url,
            "no_proxy": "*",
        }
        self._of_service = {"SERVICE_LISTEN": f"127.0.0.1:{port}", "SERVICE_BROKER_PORT": str(broker_port)}
        self._of_worker = {"SERVICE_BROKER_PORT": str(broker_port)}

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace("http://localhost:8080", self.url))

    def carry_out(self, command: str, shown: str) -> None:
        """A command of the page. Whoever asks a question repeats it until the answer has come."""
        if command == SERVE:
            self._service = self._started_anew(command, self._service, self._of_service)
            until_found(self._is_ready)
        elif WORKER.fullmatch(command):
            self._worker = self._started_anew(command, self._worker, self._of_worker)
        elif found := ASSIGNMENT.fullmatch(command):
            self.environ[found[1]] = until_found(lambda: self._ran(found[2]).stdout.strip())
        elif shown:
            self._ask_until_shown(command, lasting(shown))
        else:
            ran = self._ran(command)
            assert 0 == ran.returncode, (command, ran.stdout, ran.stderr)

    def end(self) -> None:
        for process in (self._worker, self._service):
            if process is not None:
                _interrupt(process)

    def completed(self, workflow: str) -> list[RunView]:
        with Client(self.url) as client:
            return [run for run in client.runs(workflow=workflow) if run.status == "completed"]

    def console(self) -> str:
        """The list of runs, as a browser without scripts gets it."""
        with urlopen(f"{self.url}/console") as page:
            return str(page.read(), "utf-8")

    def _started_anew(
        self, command: str, before: subprocess.Popen[bytes] | None, environ: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        if before is not None:
            _interrupt(before)
        program, *rest = command.split()
        path = self.folder / ".venv" / "bin" / program
        return subprocess.Popen(
            [path, *rest], cwd=self.folder, env={**self.environ, **environ}, stdin=subprocess.DEVNULL
        )

    def _is_ready(self) -> bool:
        try:
            return urlopen(f"{self.url}/ready").status == HTTPStatus.OK
        except OSError:
            return False

    def _ask_until_shown(self, command: str, shown: str) -> None:
        printed = ""

        def is_shown() -> bool:
            nonlocal printed
            ran = self._ran(command)
            printed = lasting(ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr)
            return shown == printed

        try:
            until_found(is_shown)
        except TimeoutError:
            assert shown == printed, command

    def _ran(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait(STOP_S_MAX)


def virtualenv(folder: Path) -> Path:
    """An empty one with pip, to which the packages that penstock depends on are there already."""
    subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=folder, check=True)
    programs = folder / ".venv" / "bin"
    (site,) = (folder / ".venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies(folder)}\n")
    (programs / "nats-server").symlink_to(Path(sys.prefix) / "bin" / "nats-server")
    return programs


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    reader = Reader(folder, build_wheel(tmp_path / "built").parent)
    try:
        yield reader
    finally:
        reader.end()


def test_every_file_and_command_does_what_the_page_says(reader: Reader) -> None:
    for name, text in FILE.findall(PAGE):
        reader.save(name, text)
    first, *later = BLOCK.findall(PAGE)

    for command, shown in COMMAND.findall(first):
        reader.carry_out(command, shown)
    [run] = until_found(lambda: reader.completed("hello"))
    assert run.run_id in reader.console()
    for command, shown in (found for block in later for found in COMMAND.findall(block)):
        reader.carry_out(command, shown)

    assert 1 == len(reader.completed("order"))


def test_the_first_result_takes_three_commands_and_few_lines() -> None:
    name, text = FILE.findall(PAGE)[0]
    commands = [command for command, _ in COMMAND.findall(BLOCK.findall(PAGE)[0])]

    assert ["pip install penstock", SERVE, f"python {name}"] == commands
    assert len(commands) <= COMMANDS_MAX
    assert len([line for line in text.splitlines() if line.strip()]) <= LINES_MAX
