"""`penstock run cancel`, `retry` and `bulk`: what is done to many runs at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from penstock.cli import documents, output
from penstock.cli.ids import RunId
from penstock.cli.session import REFUSED, Command, Session
from penstock.cli.times import Past
from penstock.engine.errors import PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.http.client import Client
    from penstock.http.client_views import CancelledRun, CancelledRuns, RetriedRuns, SkippedRun

AFTER = click.option(
    "--after", metavar="TIME", type=Past(), help="Only runs created at this time or later: 2026-01-31T12:00:00Z, or 1h ago."
)
BEFORE = click.option(
    "--before", metavar="TIME", type=Past(), help="Only runs created at this time or earlier: 2026-01-31T12:00:00Z, or 1h ago."
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


@click.command(cls=Command)
@click.argument("run_ids", metavar="[ID]...", nargs=-1, type=RunId())
@click.option("--reason", help="Kept in the history of the runs ID...")
@click.option("--workflow", metavar="W", help="Instead of ID...: the runs of this workflow that have not ended, at most 1000.")
@click.option(
    "--status", type=click.Choice(("running", "pending", "all")), help="With --workflow. pending: also scheduled.  [default: all]"
)
@AFTER
@BEFORE
@DRY_RUN
@click.pass_obj
def cancel(session: Session, /, run_ids: tuple[str, ...], reason: str | None, workflow: str | None, **matching: Any) -> None:
    """Cancel the runs ID..., or those of a workflow. A run that cannot be cancelled does not keep the others from it."""
    if bool(run_ids) == (workflow is not None):
        raise click.UsageError("give either ID... or --workflow")
    if workflow is None:
        _no_options("--workflow", **matching)
        _cancel_each(session.client(), run_ids, reason)
    else:
        _no_options("ID...", reason=reason)
        done = session.client().cancel_all(workflow, **matching)
        output.show(done, lambda: _show_cancelled(done))


@click.command(cls=Command)
@click.option("--workflow", metavar="W", required=True, help="The failed runs of this workflow, at most 1000.")
@click.option(
    "--mode",
    type=click.Choice(("rerun", "replay")),
    required=True,
    help="rerun: new runs with the same inputs. replay: the runs go on at what failed.",
)
@AFTER
@BEFORE
@DRY_RUN
@click.pass_obj
def retry(session: Session, workflow: str, mode: str, after: str | None, before: str | None, dry_run: bool) -> None:
    """Retry the failed runs of a workflow."""
    done = session.client().retry_all(workflow, mode, after=after, before=before, dry_run=dry_run)
    output.show(done, lambda: _show_retried(done))


@click.command(cls=Command)
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


def _no_options(other: str, **given: object) -> None:
    """Raises UsageError for options that belong to the other way of use."""
    wrong = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)} can be given with {other} only")


def _cancel_each(client: Client, run_ids: tuple[str, ...], reason: str | None) -> None:
    answers = [_cancel(client, run_id, reason) for run_id in run_ids]
    done = [answer for answer in answers if answer is not None]
    output.show(done, lambda: _lines(f"{answer.run_id} {answer.status}" for answer in done))
    if len(done) < len(run_ids):
        click.get_current_context().exit(REFUSED)


def _cancel(client: Client, run_id: str, reason: str | None) -> CancelledRun | None:
    try:
        return client.cancel(run_id, reason)
    except Unavailable:
        raise
    except PenstockError as error:
        click.echo(f"Error: {output.printable(run_id)}: {output.printable(str(error))}", err=True)
        return None


def _show_cancelled(done: CancelledRuns) -> None:
    word = "would be cancelled" if done.dry_run else "cancelled"
    _lines(f"{run_id} {word}" for run_id in done.cancelled)
    _show_skipped(done.skipped)


def _show_retried(done: RetriedRuns) -> None:
    word = "would be retried" if done.dry_run else "resumed"
    _lines(f"{one.original_run_id} {f'again as {one.new_run_id}' if one.new_run_id else word}" for one in done.retried)
    _show_skipped(done.skipped)


def _show_skipped(skipped: Iterable[SkippedRun]) -> None:
    _lines(output.printable(f"{one.run_id} skipped: {one.reason}") for one in skipped)


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
