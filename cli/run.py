"""`penstock run`: start, status, list, events, watch, cancel, bulk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

import click

from penstock.cli import documents, output
from penstock.cli.session import REFUSED, RUN_NOT_COMPLETED, Group, Session
from penstock.engine.errors import PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.http.client import Client
    from penstock.http.client_views import CancelledRun, RunView

RUN_ID = click.argument("run_id", metavar="ID")
WAIT = click.option("--wait", is_flag=True, help="Wait until the run ends; exit code 4 unless it completed.")
STATUSES = ("scheduled", "pending", "running", "completed", "failed", "cancelled")


@click.group(cls=Group)
def run() -> None:
    """Start, follow, list and cancel runs."""


@run.command()
@click.argument("workflow")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The run's input; - reads stdin.")
@click.option("--idempotency-key", metavar="KEY", help="The same key gives the same run, however often it is sent.")
@WAIT
@click.pass_obj
def start(session: Session, workflow: str, given: str | None, idempotency_key: str | None, wait: bool) -> None:
    """Start a run of WORKFLOW now and print its id."""
    client = session.client()
    body = None if given is None else documents.run_input(given)
    started = client.start(workflow, body, idempotency_key=idempotency_key)
    if wait:
        _finish(_ended(client, started.run_id))
    else:
        output.show(started, lambda: click.echo(started.run_id))


@run.command()
@RUN_ID
@WAIT
@click.pass_obj
def status(session: Session, run_id: str, wait: bool) -> None:
    """Show the run ID: its steps, and the outputs of those that finished."""
    from penstock.cli import run_view

    client = session.client()
    if wait:
        _finish(_ended(client, run_id))
    else:
        found = client.run(run_id)
        output.show(found, lambda: run_view.describe(found))


@run.command("list")
@click.option("--workflow", help="Runs of this workflow only.")
@click.option("--status", type=click.Choice(STATUSES), help="Runs in this status only.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, newest first.")
@click.option("--after", metavar="TIME", help="Runs created after this RFC 3339 time.")
@click.option("--before", metavar="TIME", help="Runs created before this RFC 3339 time.")
@click.pass_obj
def list_runs(session: Session, workflow: str | None, status: str | None, limit: int, after: str | None, before: str | None) -> None:
    """List runs, newest first."""
    from penstock.cli import run_view

    found = list(session.client().runs(workflow=workflow, status=status, after=after, before=before, limit=limit))
    output.show(found, lambda: output.table(run_view.LIST_HEADERS, map(run_view.list_row, found)))


@run.command()
@RUN_ID
@click.option("--follow", is_flag=True, help="Go on with events as they happen, until the run ends.")
@click.option("--after", metavar="SEQ", type=click.IntRange(min=0), default=0, help="Only events after this sequence.")
@click.pass_obj
def events(session: Session, run_id: str, follow: bool, after: int) -> None:
    """Print the history of the run ID. With --follow --json: one JSON object a line."""
    from penstock.cli import run_view

    client = session.client()
    if follow:
        run_view.print_events(client.follow(run_id, after))
    else:
        found = client.events(run_id, after)
        output.show(found, lambda: run_view.print_events(found))


@run.command()
@RUN_ID
@click.pass_obj
def watch(session: Session, run_id: str) -> None:
    """Watch the steps of the run ID until it ends; exit code 4 unless it completed."""
    from penstock.cli import run_view

    client = session.client()
    if run_view.is_live():
        _exit_code(run_view.watch_live(client, run_id))
    else:
        client.run(run_id)
        run_view.print_events(client.follow(run_id))
        _exit_code(client.run(run_id))


@run.command()
@click.argument("run_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", help="Kept in the history.")
@click.pass_obj
def cancel(session: Session, run_ids: tuple[str, ...], reason: str | None) -> None:
    """Cancel the runs ID... A run that cannot be cancelled does not keep the others from it."""
    client = session.client()
    answers = [_cancel(client, run_id, reason) for run_id in run_ids]
    done = [answer for answer in answers if answer is not None]
    output.show(done, lambda: _lines(f"{answer.run_id} {answer.status}" for answer in done))
    if len(done) < len(run_ids):
        click.get_current_context().exit(REFUSED)


@run.command()
@click.argument("workflow")
@click.argument("file", type=click.File("rb"))
@click.pass_obj
def bulk(session: Session, workflow: str, file: BinaryIO) -> None:
    """Start one run of WORKFLOW per input in FILE (a JSON array, or JSON lines; - for stdin) and print the run ids.

    Each request starts up to 1000 runs, all of them or none; after an error, the ids printed are of those that started.
    """
    client, inputs = session.client(), documents.bulk_inputs(file.read())
    run_ids: list[str] = []
    try:
        with output.progress("starting", len(inputs)) as advance:
            for part in documents.requests(inputs):
                run_ids += client.bulk(workflow, part).run_ids
                advance(len(part))
    finally:
        output.show({"run_ids": run_ids, "total": len(run_ids)}, lambda: _lines(run_ids))


def _ended(client: Client, run_id: str) -> RunView:
    """The run, once it has ended."""
    for _ in client.follow(run_id):
        pass
    return client.run(run_id)


def _finish(found: RunView) -> None:
    from penstock.cli import run_view

    output.show(found, lambda: run_view.describe(found))
    _exit_code(found)


def _exit_code(found: RunView) -> None:
    if found.status != "completed":
        click.get_current_context().exit(RUN_NOT_COMPLETED)


def _cancel(client: Client, run_id: str, reason: str | None) -> CancelledRun | None:
    try:
        return client.cancel(run_id, reason)
    except Unavailable:
        raise
    except PenstockError as error:
        click.echo(f"Error: {output.printable(run_id)}: {output.printable(str(error))}", err=True)
        return None


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
