"""`penstock run`: start, status, list, stats, output, events, watch, scheduled, unschedule, signal; of many runs:
cancel, retry, bulk, rerun; of a step: retry, skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.commands import bulk
from penstock.cli.history import past
from penstock.cli.operating import live, waiting
from penstock.cli.operating.explain import explain
from penstock.cli.recovery import pausing, rerun
from penstock.cli.terminal import documents, output
from penstock.cli.terminal.browser import OPEN, open_run
from penstock.cli.terminal.ids import RUN_ID
from penstock.cli.terminal.labels import HAVING, LABEL
from penstock.cli.terminal.session import RUN_NOT_COMPLETED, Group, Session
from penstock.cli.terminal.times import Future, moment
from penstock.config.limits import STATS_WITHIN_MS_MAX, STATS_WITHIN_MS_MIN

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.views import RunView, StartedRun

F = TypeVar("F", bound=Callable[..., object])

WAIT = click.option("--wait", is_flag=True, help="Wait until the run ends; exit code 4 unless it completed.")
STATUSES = ("scheduled", "pending", "running", "compensating", "completed", "failed", "cancelled")


# Which runs, of list and stats.
SELECTION = (
    click.option("--workflow", help="Runs of this workflow only."),
    click.option("--status", type=click.Choice(STATUSES), help="Runs in this status only."),
    HAVING,
    click.option("--q", "text", metavar="TEXT", help="Only runs whose id begins so, or with a label that contains it."),
    click.option("--trigger", help="Runs that this trigger has started only."),
    click.option("--parent", help="Runs that a step of this run has started only."),
    bulk.PAUSED,
    bulk.AFTER,
    bulk.BEFORE,
)


def selecting(command: F) -> F:
    """Give a command the options of SELECTION."""
    for option in reversed(SELECTION):
        command = option(command)
    return command


@click.group(cls=Group)
def run() -> None:
    """Start, follow, list, cancel and retry runs."""


OF_RUNS = (bulk.cancel, bulk.retry, bulk.bulk, rerun.rerun, rerun.step, pausing.pause, pausing.resume)
RECORDED = (past.show, past.diff, past.graph, past.export, past.import_run)

for command in (*OF_RUNS, *RECORDED, explain, live.logs, live.stream):
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
@LABEL
@WAIT
@OPEN
@click.pass_obj
def start(
    session: Session,
    workflow: str,
    given: str | None,
    run_at: str | None,
    version: str | None,
    idempotency_key: str | None,
    labels: dict[str, str],
    wait: bool,
    page: bool,
) -> None:
    """Start a run of WORKFLOW and print its id. With --wait, the id goes to stderr at once, and the run is shown until
    it ends."""
    client = session.client()
    body = None if given is None else documents.run_input(given)
    started = client.start(
        workflow, body, run_at=run_at, version=version, idempotency_key=idempotency_key, labels=labels
    )
    if page:
        open_run(session.url, started.run_id)
    if wait:
        click.echo(started.run_id, err=True)
        _finish(session, started.run_id)
    else:
        output.show(started, lambda: _show_started(started))


@run.command()
@RUN_ID
@WAIT
@click.pass_obj
def status(session: Session, run_id: str, wait: bool) -> None:
    """Show the run ID: its steps, and the outputs of those that finished."""

    client = session.client()
    if wait:
        _finish(session, run_id)
    else:
        found = client.get_run(run_id)
        output.show(found, lambda: _describe(client, found))


@run.command("list")
@selecting
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, newest first."
)
@click.pass_obj
def list_runs(session: Session, /, limit: int, **wanted: Any) -> None:
    """List runs, newest first."""
    from penstock.cli.terminal import run_view

    found = list(session.client().runs(**wanted, limit=limit))
    output.show(found, lambda: output.table(run_view.LIST_HEADERS, map(run_view.list_row, found)))


@run.command()
@selecting
@click.option("--bucket", metavar="D", help="The width of a bucket of time, such as 1h.  [default: all in one]")
@click.option("--by", type=click.Choice(("workflow", "trigger")), help="Count those of each one of these, too.")
@click.option(
    "--within",
    "within_ms",
    metavar="MS",
    type=click.IntRange(STATS_WITHIN_MS_MIN, STATS_WITHIN_MS_MAX),
    help="Count the newest runs for so many milliseconds, and say how far that went.",
)
@click.option("--durations", is_flag=True, help="Say also how long the newest completed runs took.")
@click.pass_obj
def stats(session: Session, /, durations: bool, **wanted: Any) -> None:
    """Count runs by status, and with --bucket by the time of their creation, the oldest first."""
    from penstock.cli.terminal import run_view

    found = session.client().run_stats(durations=durations or None, **wanted)
    output.show(found, lambda: run_view.show_stats(found))


@run.command("output")
@RUN_ID
@click.argument("step")
@click.pass_obj
def step_output(session: Session, run_id: str, step: str) -> None:
    """Print what STEP of the run ID gave back, as JSON, whatever its size."""
    click.echo(session.client().output(run_id, step))


@run.command("checkpoint")
@RUN_ID
@click.argument("step")
@click.pass_obj
def step_checkpoint(session: Session, run_id: str, step: str) -> None:
    """Print what the worker of STEP of the run ID has kept last, and when."""
    found = session.client().checkpoint(run_id, step)
    output.show(found, lambda: click.echo(output.to_json(found)))


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
@OPEN
@click.pass_obj
def watch(session: Session, run_id: str, page: bool) -> None:
    """Watch the steps of the run ID until it ends; exit code 4 unless it completed."""
    from penstock.cli.terminal import run_view

    client = session.client()
    if page:
        open_run(session.url, run_id)
    if run_view.is_live():
        _exit_code(_live(client, run_id))
    else:
        client.get_run(run_id)
        run_view.print_events(client.follow(run_id))
        _exit_code(client.get_run(run_id))


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


def _show_started(started: StartedRun) -> None:
    """Its id, and on stderr what it will wait for."""
    click.echo(started.run_id)
    for text in started.warnings or ():
        click.echo(f"Warning: {output.printable(text)}", err=True)


def _describe(client: Client, found: RunView) -> None:
    """The run, and why it waits."""
    from penstock.cli.terminal import run_view

    run_view.describe(found)
    if not found.ended:
        waiting.show(waiting.sentences(client, found.run_id))


def _live(client: Client, run_id: str, *, transient: bool = False) -> RunView:
    """A live view of the run, which says why it waits."""
    from penstock.cli.terminal import run_view

    return run_view.watch_live(client, run_id, waiting.WaitingNotes(client).texts, transient=transient)


def _finish(session: Session, run_id: str) -> None:
    """Wait for the end of the run, on a terminal with a live view of it, and show what became of it. Who waits for a
    while is told why."""
    from penstock.cli.terminal import run_view

    client = session.client()
    found = _live(client, run_id, transient=True) if run_view.is_live() else _ended(session, run_id)
    output.show(found, lambda: run_view.describe(found))
    _exit_code(found)


def _ended(session: Session, run_id: str) -> RunView:
    """The run, once it has ended."""
    client = session.client()
    with waiting.explaining(session, run_id) as progress:
        for _ in client.follow(run_id):
            progress()
    return client.get_run(run_id)


def _exit_code(found: RunView) -> None:
    if found.status != "completed":
        click.get_current_context().exit(RUN_NOT_COMPLETED)
