"""`penstock demo`: the workflow `textstats` of penstock.demo from start to end, its result checked against a direct
computation."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from click.core import ParameterSource

from penstock.cli.demo.starting import await_ready, await_registered
from penstock.cli.terminal import output
from penstock.cli.terminal.session import REFUSED, RUN_NOT_COMPLETED, JsonCommand, Session, as_json
from penstock.demo import textstats

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.views import RunView

# The packages of a wheel; or a checkout, to which its installation links.
INSTALLED = Path(__file__).resolve().parents[2]
WORKER = "penstock.demo.textstats_worker"
LAST_STEP = "report"
WORKER_STOPS_S_MAX = 15.0


@click.command(cls=JsonCommand)
@click.option(
    "--path", type=click.Path(exists=True, path_type=Path), help="Folder with texts; default: penstock's own documents."
)
@click.option("--keep-worker", is_flag=True, help="Leave the worker running.")
@click.option(
    "--console",
    is_flag=True,
    help="Fill a service with workflows of every kind, and keep them going until Ctrl-C. Without --url and "
    "SERVICE_URL: a service of its own, whose data are removed at the end.",
)
@click.pass_obj
def demo(session: Session, path: Path | None, keep_worker: bool, console: bool) -> None:
    """Count the words of many texts with a workflow on a worker process of its own, and count them again without.

    A service that is just starting is waited for. The worker finds the broker as every worker does: by
    SERVICE_BROKER_URL, else on this machine. Exit code 1 when the two results differ, 4 when the run did not complete.
    """
    if console:
        _present(session, path, keep_worker)
        return
    source, client = _source(path), session.client()
    await_ready(client, session.url)
    client.register(files("penstock.demo").joinpath("textstats.json").read_bytes())
    _say("registered the workflow textstats")
    with _worker(client, keep_worker):
        run_id = client.start("textstats", orjson.dumps({"path": source})).run_id
        _say(f"started the run {run_id}")
        run = _followed(client, run_id)
    if run.status != "completed":
        _show_failure(run)
    else:
        _show(run, textstats.compute(source))


def _present(session: Session, path: Path | None, keep_worker: bool) -> None:
    """The console with something in it."""
    if path is not None or keep_worker:
        raise click.UsageError("--console goes with neither --path nor --keep-worker")
    from penstock.cli.demo.showcase import present

    source = click.get_current_context().find_root().get_parameter_source("url")
    present(session, own=source is ParameterSource.DEFAULT)


def _source(path: Path | None) -> list[str]:
    """What to count, as absolute paths: the worker has a directory of its own."""
    if path is not None:
        return [str(path.resolve())]
    documents = INSTALLED / "docs"
    return [*map(str, sorted(INSTALLED.glob("*.md"))), str(documents)] if documents.is_dir() else [str(INSTALLED)]


@contextmanager
def _worker(client: Client, keep: bool) -> Iterator[None]:
    """The example's worker, registered at the service, for the time of the block or (`keep`) until someone ends it."""
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        command = [sys.executable, "-P", "-m", WORKER]  # -P: modules in the current directory are none of its business
        signal.signal(
            signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
        )  # else it would outlive this process
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        kept = stack.enter_context(ExitStack())
        kept.callback(_stop, process)
        await_registered(client, process.pid, lambda: process.poll() is not None, log)
        _say(f"started a worker, process {process.pid}")
        yield
        if keep:
            kept.pop_all()
            _say(f"the worker keeps running: kill {process.pid} ends it")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(WORKER_STOPS_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _followed(client: Client, run_id: str) -> RunView:
    """The run, once it has ended; shown meanwhile."""
    from penstock.cli.terminal import run_view

    if run_view.is_live():
        return run_view.watch_live(client, run_id)
    for event in client.follow(run_id):
        _say(run_view.event_line(event))
    return client.get_run(run_id)


def _show(run: RunView, expected: dict[str, Any]) -> None:
    """Both results side by side; differing ones are an error."""
    found = orjson.loads(bytes(run.steps[LAST_STEP].output or b"null"))
    equal = found == expected
    result = {"run_id": run.run_id, "status": run.status, "output": found, "expected": expected, "equal": equal}
    output.show(result, lambda: _compare(found, expected, equal))
    if not equal:
        click.get_current_context().exit(REFUSED)


def _compare(found: Any, expected: dict[str, Any], equal: bool) -> None:
    numbers = found if isinstance(found, dict) else {}
    rows = [
        (name, str(numbers.get(name, "")), str(value)) for name, value in expected.items() if isinstance(value, int)
    ]
    click.echo()
    output.table(("COUNTED", "BY THE WORKFLOW", "DIRECTLY"), rows)
    click.echo("\nmost frequent: " + ", ".join(f"{word} {count}" for word, count in expected["top"][:10]))
    click.echo(f"the workflow's result {'equals' if equal else 'DIFFERS from'} the direct computation")


def _show_failure(run: RunView) -> None:
    from penstock.cli.terminal import run_view

    output.show({"run_id": run.run_id, "status": run.status, "error": run.error}, lambda: run_view.describe(run))
    click.get_current_context().exit(RUN_NOT_COMPLETED)


def _say(text: str) -> None:
    if not as_json():
        click.echo(text)
