"""`penstock dev`: a service and the workers of one file, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

import click

from penstock.cli.demo.own_service import own_service
from penstock.cli.dev.messages import Message, Refused, Serving
from penstock.cli.dev.watching import check_library, watch
from penstock.cli.dev.worker_processes import WorkerProcess, WorkerProcesses, forget_compiled
from penstock.cli.terminal.browser import console_url
from penstock.cli.terminal.output import printable
from penstock.cli.terminal.session import Session
from penstock.engine.errors import Unavailable

SLOW_S = 5.0
NAMES_TAKEN = sys.stdlib_module_names | {"penstock"}
HTTP_ALLOWED = "127.0.0.0/8"

Saved = set[Path]
Happening = Saved | int | str | tuple[WorkerProcess, Message | None]  # a signal; why the service has ended


@click.command()
@click.argument("app", type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path))
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the service's data in this directory; default: a temporary one that is removed at the end.",
)
@click.pass_obj
def dev(session: Session, app: Path, data: Path | None) -> None:
    """Run a service, and the workflows and workers of a Python file; load the file anew when code is saved.

    It serves each Workflow and Worker at the top level of the file. Runs go on while the code changes: a task in hand
    is finished by the process that has it, all others go to the new code. Code that cannot be loaded is shown, and the
    one before it goes on.
    """
    check_library()
    if app.suffix != ".py":
        raise click.BadParameter(f"{app.name} is no Python file", param_hint="APP")
    if app.stem in NAMES_TAKEN:
        raise click.BadParameter(
            f"{app.name} would hide the module {app.stem} from all that import it: give it another name",
            param_hint="APP",
        )
    happenings: SimpleQueue[Happening] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # until all has started
    with ExitStack() as stack:
        options = ["--builtin-workers=http", f"--http-allow={HTTP_ALLOWED}"]
        kept = data and data.resolve()
        service = stack.enter_context(own_service(session.token, kept, options))
        variables = service.variables
        Thread(target=lambda: happenings.put(service.await_end()), daemon=True, name="service").start()
        stop = Event()
        stack.callback(stop.set)
        watch(app.parent, [kept] if kept else [], happenings.put, stop)
        environ = {"SERVICE_LOG_LEVEL": "warning", **os.environ, "SERVICE_CONFIG": "", **variables}
        if session.token:
            environ["SERVICE_API_TOKEN"] = session.token
        processes = WorkerProcesses(app, environ, lambda process, message: happenings.put((process, message)))
        stack.callback(processes.stop)
        _say(f"the service is ready, its console: {console_url(variables['SERVICE_URL'])}")
        _say(f"its data are {f'kept in {data}' if data else 'removed at the end'}; Ctrl-C ends it")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: happenings.put(number))
        ReloadLoop(app, processes, happenings).run()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: processes.kill())  # somebody who does not want to wait
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # one that comes while the interpreter ends would be its exit status
    _say("stopped")


class ReloadLoop:
    """What the command does once the service is ready, in one thread."""

    def __init__(self, app: Path, processes: WorkerProcesses, happenings: SimpleQueue[Happening]) -> None:
        self._app, self._processes, self._happenings = app, processes, happenings
        self._saved_at, self._is_first, self._waits = time.monotonic(), True, True

    def run(self) -> None:
        """Until a signal. Raises Unavailable when the service has ended."""
        self._load()
        while not isinstance(happening := self._next(), int):
            if isinstance(happening, str):
                raise Unavailable(f"the service has ended:\n{happening}")
            if isinstance(happening, set):
                forget_compiled(happening)
                self._load()
            elif happening is not None:
                self._on_said(*happening)

    def _next(self) -> Happening | None:
        """None: the code takes long to load, which is said once."""
        try:
            return self._happenings.get(timeout=SLOW_S if self._waits else None)
        except Empty:
            self._waits = False
            _say(
                f"{self._app.name} is still loading after {SLOW_S:g} s; does it call worker.run() outside of "
                'if __name__ == "__main__"?'
            )
            return None

    def _load(self) -> None:
        self._saved_at, self._waits = time.monotonic(), True
        self._processes.load()

    def _on_said(self, process: WorkerProcess, message: Message | None) -> None:
        if message is None:
            if self._processes.ended(process):
                self._say_ended(process)
        elif process is self._processes.loading:
            self._waits = False
            if isinstance(message, Serving):
                self._processes.take_over()
                self._say_serving(message)
            else:
                self._processes.give_up()
                self._say_refused(message)
            self._processes.prepare()

    def _say_serving(self, found: Serving) -> None:
        verb = "serving" if self._is_first else "reloaded"
        self._is_first = False
        names = f"workflows: {_listed(found.workflows)}; tasks: {_listed(found.tasks)}"
        _say(f"{verb} {self._app.name} ({time.monotonic() - self._saved_at:.2f} s); {names}")

    def _say_refused(self, refused: Refused) -> None:
        for problem in refused.problems:
            _say(str(problem), err=True)
        _say(self._what_now, err=True)

    def _say_ended(self, process: WorkerProcess) -> None:
        self._waits = False
        _say(f"the process with {self._app.name} has ended (exit code {process.program.returncode})", err=True)
        _say(self._what_now, err=True)

    @property
    def _what_now(self) -> str:
        if self._processes.serving is None:
            return "nothing takes tasks until the next save"
        return "the code of before goes on taking tasks"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _say(text: str, *, err: bool = False) -> None:
    for line in text.splitlines():
        click.echo(printable(line), err=err)
