"""`penstock run`: start, status, list, output, events, watch, scheduled, unschedule, signal; of many runs: cancel,
retry, bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.commands import bulk
from penstock.cli.terminal import documents, output
from penstock.cli.terminal.ids import RUN_ID
from penstock.cli.terminal.session import RUN_NOT_COMPLETED, Group, Session
from penstock.cli.terminal.times import Future, moment

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.views import RunView

WAIT = click.option("--wait", is_flag=True, help="Wait until the run ends; exit code 4 unless it completed.")
STATUSES = ("scheduled", "pending", "running", "compensating", "completed", "failed", "cancelled")


@click.group(cls=Group)
def run() -> None:
    """Start, follow, list, cancel and retry runs."""


for command in (bulk.cancel, bulk.retry, bulk.bulk):
    run.add_command(command)


@run.command()
@click.argument("workflow")
@documents.given_option("The run's input:")
@click.option(
    "--at",
    "run_at",
    metavar="TIME",
    type=Future(),
    help="When: 2027-01-31T12:00:00Z, or +30s from now.  [default: now]",
)
@bulk.VERSION
@click.option("--idempotency-key", metavar="KEY", help="The same key gives the same run, however often it is sent.")
@WAIT
@click.pass_obj
def start(
    session: Session,
    workflow: str,
    given: str | None,
    run_at: str | None,
    version: str | None,
    idempotency_key: str | None,
    wait: bool,
) -> None:
    """Start a run of WORKFLOW and print its id. With --wait, the id goes to stderr at once, and the run is shown until
    it ends."""
    client = session.client()
    body = None if given is None else documents.run_input(given)
    started = client.start(workflow, body, run_at=run_at, version=version, idempotency_key=idempotency_key)
    if wait:
        click.echo(started.run_id, err=True)
        _finish(client, started.run_id)
    else:
        output.show(started, lambda: click.echo(started.run_id))


@run.command()
@RUN_ID
@WAIT
@click.pass_obj
def status(session: Session, run_id: str, wait: bool) -> None:
    """Show the run ID: its steps, and the outputs of those that finished."""
    from penstock.cli.terminal import run_view

    client = session.client()
    if wait:
        _finish(client, run_id)
    else:
        found = client.run(run_id)
        output.show(found, lambda: run_view.describe(found))


@run.command("list")
@click.option("--workflow", help="Runs of this workflow only.")
@click.option("--status", type=click.Choice(STATUSES), help="Runs in this status only.")
@click.option("--parent", help="Runs that a step of this run has started only.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, newest first."
)
@bulk.AFTER
@bulk.BEFORE
@click.pass_obj
def list_runs(
    session: Session,
    workflow: str | None,
    status: str | None,
    parent: str | None,
    limit: int,
    after: str | None,
    before: str | None,
) -> None:
    """List runs, newest first."""
    from penstock.cli.terminal import run_view

    wanted = {"workflow": workflow, "status": status, "parent": parent, "after": after, "before": before}
    found = list(session.client().runs(**wanted, limit=limit))
    output.show(found, lambda: output.table(run_view.LIST_HEADERS, map(run_view.list_row, found)))


@run.command("output")
@RUN_ID
@click.argument("step")
@click.pass_obj
def step_output(session: Session, run_id: str, step: str) -> None:
    """Print what STEP of the run ID gave back, as JSON, whatever its size."""
    click.echo(session.client().output(run_id, step))


@run.command()
@RUN_ID
@click.argument("step")
@click.option("--status", help="Elements in this status only.")
@click.pass_obj
def items(session: Session, run_id: str, step: str, status: str | None) -> None:
    """List the elements of the map STEP of the run ID."""
    from penstock.cli.terminal import run_view

    found = list(session.client().items(run_id, step, status=status))
    output.show(found, lambda: output.table(run_view.ITEM_HEADERS, map(run_view.item_row, found)))


@run.command()
@RUN_ID
@click.option("--follow", is_flag=True, help="Go on with events as they happen, until the run ends.")
@click.option("--after", metavar="SEQ", type=click.IntRange(min=0), default=0, help="Only events after this sequence.")
@click.pass_obj
def events(session: Session, run_id: str, follow: bool, after: int) -> None:
    """Print the history of the run ID. With --follow --json: one JSON object a line."""
    from penstock.cli.terminal import run_view

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
    from penstock.cli.terminal import run_view

    client = session.client()
    if run_view.is_live():
        _exit_code(run_view.watch_live(client, run_id))
    else:
        client.run(run_id)
        run_view.print_events(client.follow(run_id))
        _exit_code(client.run(run_id))


@run.command()
@RUN_ID
@click.pass_obj
def scheduled(session: Session, run_id: str) -> None:
    """Show the run ID, if it waits for its time."""
    found = session.client().scheduled(run_id)
    rows = [
        ("run", found.run_id),
        ("workflow", found.workflow_id),
        ("status", found.status),
        ("run at", moment(found.run_at)),
    ]
    more = [("created", moment(found.created_at)), ("input", output.optional(found.input))]
    output.show(found, lambda: output.fields([*rows, *more]))


@run.command()
@RUN_ID
@click.pass_obj
def unschedule(session: Session, run_id: str) -> None:
    """Cancel the run ID before it starts; exit code 1 if it has."""
    done = session.client().unschedule(run_id)
    output.show(done, lambda: click.echo(f"{run_id} {done.status}"))


@run.command()
@RUN_ID
@click.argument("name")
@documents.given_option("The payload, in a file or stdin any bytes:")
@click.pass_obj
def signal(session: Session, run_id: str, name: str, given: str | None) -> None:
    """Send the signal NAME to the run ID."""
    sent = session.client().signal(run_id, name, b"" if given is None else documents.payload(given))
    output.show(sent, lambda: click.echo(f"{sent.run_id} {sent.signal} {sent.status}"))


@run.command(hidden=True)  # as `approval approve` and `reject`, from before there were those
@RUN_ID
@click.argument("step")
@click.option("--token", required=True, help="The approval's one-time token.")
@click.option("--reject", is_flag=True, help="Reject it: the step fails.")
@click.option("--comment", help="Kept with the decision.")
@click.option("--by", "approved_by", metavar="NAME", help="Who decides.")
@click.pass_obj
def decide(
    session: Session, run_id: str, step: str, token: str, reject: bool, comment: str | None, approved_by: str | None
) -> None:
    """Approve (or reject) STEP of the run ID, which waits for it."""
    action = "reject" if reject else "approve"
    done = session.client().decide(run_id, step, token, action, comment=comment, approved_by=approved_by)
    output.show(done, lambda: click.echo(f"{done.status} {done.step}"))


def _finish(client: Client, run_id: str) -> None:
    """Wait for the end of the run, on a terminal with a live view of it, and show what became of it."""
    from penstock.cli.terminal import run_view

    found = run_view.watch_live(client, run_id, transient=True) if run_view.is_live() else _ended(client, run_id)
    output.show(found, lambda: run_view.describe(found))
    _exit_code(found)


def _ended(client: Client, run_id: str) -> RunView:
    """The run, once it has ended."""
    for _ in client.follow(run_id):
        pass
    return client.run(run_id)


def _exit_code(found: RunView) -> None:
    if found.status != "completed":
        click.get_current_context().exit(RUN_NOT_COMPLETED)
