"""`penstock dev`: a service and the workers of a file, which is loaded anew when it is saved."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from penstock.client import Client
from penstock.client.views import RunView
from tests.support.service import PENSTOCK, _descendants, _still_alive, clean_environ

STOP_S_MAX = 40.0
GRACE_S = 10.0  # that a worker which is to end gives its tasks in hand
APP = """\
from penstock import Workflow, task


@task
def greet(name: str) -> str:
    return "hello " + name


flow = Workflow("greet")
flow.step(greet, input=flow.input)
"""
IN_HAND = """\
from penstock import Workflow, task

VERSION = "old"


@task
def wait(fifo: str) -> str:
    with open(fifo + ".begun", "w") as begun:
        begun.write(VERSION)
    with open(fifo) as released:
        return VERSION + released.read()


@task
def after(text: str) -> str:
    return f"{text}, then {VERSION}"


flow = Workflow("held")
waited = flow.step(wait, input=flow.input)
flow.step(after, input=waited)
"""


class Dev:
    """The command, and what it prints."""

    def __init__(self, process: subprocess.Popen[str], app: Path) -> None:
        self.process, self.app, self.url = process, app, ""

    def line(self, pattern: str) -> re.Match[str]:
        """The next line that matches; those before it are passed over."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"no line like {pattern!r} in:\n{''.join(seen)}")

    def save(self, old: str, new: str) -> None:
        text = self.app.read_text()
        assert old in text
        self.app.write_text(text.replace(old, new))

    def run(self, workflow: str, value: object) -> RunView:
        with Client(self.url) as client:
            return ended(client, client.start(workflow, orjson.dumps(value)).run_id)


def ended(client: Client, run_id: str) -> RunView:
    for _ in client.follow(run_id):
        pass  # it returns at the end of the run
    return client.get_run(run_id)


def output(run: RunView) -> object:
    """Of its last step."""
    assert "completed" == run.status
    return orjson.loads(bytes([*run.steps.values()][-1].output or b"null"))


def started(folder: Path, source: str, *options: str) -> Dev:
    app = folder / "app.py"
    app.write_text(source)
    process = subprocess.Popen(
        [PENSTOCK, "dev", str(app), *options],
        env={**clean_environ(), "PYTHONUNBUFFERED": "1", "TMPDIR": str(folder.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Dev(process, app)


@contextmanager
def developing(folder: Path, source: str, *options: str) -> Iterator[Dev]:
    dev = started(folder, source, *options)
    process = dev.process
    try:
        dev.url = dev.line("its console: (http.*)/console")[1]
        yield dev
    finally:
        known = [process.pid, *_descendants(process.pid)]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=STOP_S_MAX)
        assert [] == _still_alive(known, 2.0), rest
    assert "stopped" == rest.splitlines()[-1]
    assert 0 == process.returncode


pytestmark = pytest.mark.timeout(300)


def test_saved_code_takes_tasks_and_errors_are_shown_in_place(tmp_path: Path) -> None:
    with developing(tmp_path, APP) as dev:
        assert "workflows: greet; tasks: greet" == dev.line(r"serving app\.py \([\d.]+ s\); (.*)")[1]
        assert "hello ada" == output(dev.run("greet", "ada"))

        saved_at = time.monotonic()
        dev.save("hello", "howdy")  # of the same length, perhaps within the same second
        dev.line("reloaded app.py")
        print(f"the new code takes tasks {time.monotonic() - saved_at:.3f} s after the save")
        assert "howdy ada" == output(dev.run("greet", "ada"))

        dev.save('"howdy " + name', '"howdy + name')
        assert dev.line(r"^app\.py:6: SyntaxError: unterminated string")
        assert 'return "howdy + name' == dev.line("return.*")[0]
        dev.line("the code of before goes on taking tasks")
        assert "howdy bob" == output(dev.run("greet", "bob"))

        dev.save('"howdy + name', '"howdy " + name')
        dev.line("reloaded app.py")
        dev.save('Workflow("greet")', 'Workflow("to greet")')
        assert 'workflow "to greet": name "to greet" may hold' in dev.line(r"^app\.py:9: (.*)")[1]
        dev.line("the code of before goes on taking tasks")

        (tmp_path / "other.py").write_text("import nowhere\n")
        dev.line(r"^app\.py:9: ")  # also a file that is not imported yet loads the code anew
        dev.save('Workflow("to greet")', 'Workflow("greet")')
        dev.line("reloaded app.py")
        dev.save("from penstock", "import other\nfrom penstock")
        assert "ModuleNotFoundError: No module named 'nowhere'" == dev.line(r"^other\.py:1: (.*)")[1]
        assert "import nowhere" == dev.line("^    (.*)")[1]
        (tmp_path / "other.py").write_text("")
        dev.line("reloaded app.py")


def test_a_task_in_hand_is_finished_by_the_old_code_and_the_run_goes_on_with_the_new(tmp_path: Path) -> None:
    fifo = tmp_path / "released"
    os.mkfifo(fifo)
    os.mkfifo(f"{fifo}.begun")
    with developing(tmp_path, IN_HAND) as dev, Client(dev.url) as client:
        dev.line("serving app.py")
        run_id = client.start("held", orjson.dumps(str(fifo))).run_id
        assert "old" == Path(f"{fifo}.begun").read_text()
        dev.save('VERSION = "old"', 'VERSION = "new"')
        dev.line("reloaded app.py")
        fifo.write_text(" in hand")
        assert "old in hand, then new" == output(ended(client, run_id))


def test_a_second_signal_does_not_wait_for_tasks_in_hand(tmp_path: Path) -> None:
    fifo = tmp_path / "released"
    os.mkfifo(fifo)  # nobody writes into it: the task would be waited for
    os.mkfifo(f"{fifo}.begun")
    with developing(tmp_path, IN_HAND) as dev, Client(dev.url) as client:
        dev.line("serving app.py")
        client.start("held", orjson.dumps(str(fifo)))
        assert "old" == Path(f"{fifo}.begun").read_text()
        known = _descendants(dev.process.pid)
        signalled_at = time.monotonic()
        dev.process.send_signal(signal.SIGINT)
        while dev.process.poll() is None and time.monotonic() < signalled_at + STOP_S_MAX:
            time.sleep(0.5)
            dev.process.send_signal(signal.SIGINT)
        took = time.monotonic() - signalled_at
    assert took < GRACE_S
    assert [] == _still_alive(known, STOP_S_MAX)


def test_changed_definitions_are_registered_and_workers_of_the_file_serve(tmp_path: Path) -> None:
    source = APP + (
        "from penstock.worker import Worker\n\n"
        "pause = Workflow('pause')\npause.sleep('nap', duration='1ms')\n"
        "worker = Worker()\n\n\n@worker.task('shout')\ndef shout(text: str) -> str:\n    return text.upper()\n"
    )
    with developing(tmp_path, source, "--data", str(tmp_path / "kept")) as dev, Client(dev.url) as client:
        assert "workflows: greet, pause; tasks: greet, shout" == dev.line(r"serving app\.py \([\d.]+ s\); (.*)")[1]
        assert "completed" == dev.run("pause", None).status
        dev.save("flow.step(greet, input=flow.input)", "flow.step('shout', after=flow.step(greet, input=flow.input))")
        dev.line("reloaded app.py")
        assert "HELLO ADA" == output(dev.run("greet", "ada"))
        assert ["greet", "shout"] == [step.id for step in client.workflow("greet").steps]
    with developing(tmp_path, dev.app.read_text(), "--data", str(tmp_path / "kept")) as dev, Client(dev.url) as client:
        dev.line("serving app.py")
        assert {"greet", "pause"} == {run.workflow_id for run in client.runs(status="completed")}


def test_a_process_that_ends_is_told_and_the_next_save_serves_again(tmp_path: Path) -> None:
    with developing(tmp_path, "import os\nos._exit(7)\n") as dev:
        dev.line(r"the process with app\.py has ended \(exit code 7\)")
        dev.line("nothing takes tasks until the next save")
        dev.app.write_text("1\n")
        dev.line(r"^app\.py: app\.py has no Workflow and no Worker")
        dev.app.write_text(APP)
        dev.line("serving app.py")
        assert "hello eve" == output(dev.run("greet", "eve"))


def test_a_new_project_is_served_and_called_as_its_page_says(tmp_path: Path) -> None:
    said = subprocess.run([PENSTOCK, "init", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    command = shlex.split(said.splitlines()[-1])
    with developing(tmp_path, (tmp_path / "app.py").read_text()) as dev:
        dev.line("serving app.py")
        environ = {**clean_environ(), "SERVICE_URL": dev.url}
        ran = subprocess.run([PENSTOCK, *command[1:]], env=environ, capture_output=True, text=True, check=False)
    assert (0, '"order o-1: 7.50"\n') == (ran.returncode, ran.stdout), ran.stderr


def test_two_at_a_time_have_a_service_each(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with developing(tmp_path / "one", APP) as one, developing(tmp_path / "two", APP) as two:
        for dev, name in ((one, "ada"), (two, "bob")):
            dev.line("serving app.py")
            assert f"hello {name}" == output(dev.run("greet", name))
        assert one.url != two.url


def test_the_command_ends_with_its_service(tmp_path: Path) -> None:
    dev = started(tmp_path, APP)
    dev.line("serving app.py")
    known = _descendants(dev.process.pid)
    service = next(pid for pid in known if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes())

    os.kill(service, signal.SIGKILL)
    said, _ = dev.process.communicate(timeout=STOP_S_MAX)

    assert "the service has ended" in said
    assert 0 != dev.process.returncode
    assert [] == _still_alive(known, STOP_S_MAX)


def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    dev = started(tmp_path, APP)
    dev.line("serving app.py")
    known = _descendants(dev.process.pid)

    dev.process.kill()
    dev.process.communicate(timeout=STOP_S_MAX)  # until nobody can write any more

    assert len(known) > 3
    assert [] == _still_alive(known, STOP_S_MAX)


def test_what_is_to_be_installed_is_named(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    code = "import sys; sys.modules['watchfiles'] = None; from penstock.cli.main import main; main()"

    ran = subprocess.run([sys.executable, "-c", code, "dev", str(app)], capture_output=True, text=True, check=False)

    assert 1 == ran.returncode
    assert "pip install 'penstock[watch]'" in ran.stderr
    assert "" == ran.stdout


@pytest.mark.parametrize("name", ["app.txt", "missing.py"])
def test_only_a_python_file_can_be_developed(tmp_path: Path, name: str) -> None:
    (tmp_path / "app.txt").write_text(APP)

    ran = subprocess.run([PENSTOCK, "dev", str(tmp_path / name)], capture_output=True, text=True, check=False)

    assert 2 == ran.returncode
    assert name in ran.stderr
