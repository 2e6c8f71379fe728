"""`penstock prune`: remove runs that have ended, with all that is stored of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET, Struct

from penstock.cli.commands import bulk
from penstock.cli.terminal import output
from penstock.cli.terminal.labels import HAVING
from penstock.cli.terminal.session import JsonCommand, Session
from penstock.cli.terminal.times import Past
from penstock.config.limits import MATCHING_RUNS_MAX

if TYPE_CHECKING:
    from penstock.client import Client, ToPrune

SHOWN_MAX = 10  # run ids, and reasons


class Pruned(Struct):
    """How many runs were removed, or would be, and how many stay though they match; the first of each, with the reasons
    of those that stay."""

    pruned: int = 0
    skipped: int = 0
    total: int = 0
    dry_run: bool = False
    run_ids: list[str] = []
    reasons: dict[str, str] = {}


@click.command(cls=JsonCommand)
@click.option(
    "--older-than",
    "ended_before",
    metavar="AGE",
    type=Past(),
    help="Only runs that ended so long ago: 30d, or before a time such as 2026-01-31T12:00:00Z.",
)
@click.option("--workflow", "workflows", metavar="W", multiple=True, help="Only runs of this workflow; repeatable.")
@click.option(
    "--status",
    "statuses",
    type=click.Choice(("completed", "failed", "cancelled", "all")),
    multiple=True,
    help="Only runs with this status; repeatable. all: whatever has ended.",
)
@HAVING
@bulk.AFTER
@bulk.BEFORE
@bulk.DRY_RUN
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def prune(
    session: Session,
    /,
    workflows: Sequence[str],
    statuses: Sequence[str],
    dry_run: bool,
    yes: bool,
    **matching: Any,
) -> None:
    """Remove runs that have ended, for good: their history, logs, outputs and dead letters. At least one condition is
    needed. Runs that others need stay: children of a run that has not ended, and what is being rerun."""
    if not any((*workflows, *statuses, *matching.values())):
        raise click.UsageError("say which: --older-than, --workflow, --status, --label, --after or --before")
    client, filters = session.client(), list(_filters(workflows, statuses, matching))
    if not dry_run and not yes:
        _ask(client, filters)
    done = Pruned(dry_run=dry_run)
    try:
        _prune(client, filters, done)
    except BaseException:
        if done.total:  # what was done before it
            output.show(done, lambda: _show(done))
        raise
    output.show(done, lambda: _show(done))


def _filters(workflows: Sequence[str], statuses: Sequence[str], matching: dict[str, Any]) -> Iterator[ToPrune]:
    """One filter for each workflow and status."""
    from penstock.client import ToPrune

    matching = {**matching, "labels": matching["labels"] or None}
    for workflow, status in product(dict.fromkeys(workflows) or (None,), dict.fromkeys(statuses) or (None,)):
        yield ToPrune(workflow_id=workflow, status=status, **matching)


def _ask(client: Client, filters: list[ToPrune]) -> None:
    """Count, and have the answer yes. Without a terminal nobody can be asked."""
    if not sys.stdin.isatty():
        raise click.UsageError("give --yes to remove, or --dry-run to see what would be removed")
    would = Pruned(dry_run=True)
    _prune(client, filters, would)
    _show(would, err=True)
    if would.pruned:
        click.confirm("Remove them for good?", abort=True, err=True)


def _prune(client: Client, filters: list[ToPrune], done: Pruned) -> None:
    """Ask for all that matches, 1,000 runs at a time, and add to `done` as the answers come."""
    from msgspec.structs import replace

    with output.progress("counting" if done.dry_run else "pruning") as advance:
        for wanted in filters:
            cursor = None
            while cursor is not UNSET:
                part = replace(wanted, dry_run=done.dry_run, limit=MATCHING_RUNS_MAX, cursor=cursor)
                answer = client.prune(part)
                done.pruned += len(answer.pruned)
                done.skipped += len(answer.skipped)
                done.total += answer.total
                done.run_ids += answer.pruned[: SHOWN_MAX - len(done.run_ids)]
                left = SHOWN_MAX - len(done.reasons)
                done.reasons.update((one.run_id, one.reason) for one in answer.skipped[:left])
                advance(answer.total, done.total + (0 if answer.remaining is UNSET else int(answer.remaining)))
                cursor = answer.next


def _show(done: Pruned, *, err: bool = False) -> None:
    verb = "would be pruned" if done.dry_run else "pruned"
    for run_id in done.run_ids:
        click.echo(f"{run_id} {verb}", err=err)
    if done.pruned > len(done.run_ids):
        click.echo(f"and {done.pruned - len(done.run_ids)} more", err=err)
    for run_id, reason in done.reasons.items():
        click.echo(output.printable(f"{run_id} skipped: {reason}"), err=err)
    if done.skipped > len(done.reasons):
        click.echo(f"and {done.skipped - len(done.reasons)} more skipped", err=err)
    click.echo(f"{done.pruned} {'run' if done.pruned == 1 else 'runs'} {verb}, {done.skipped} skipped", err=err)
