"""`penstock run pause` and `penstock run resume`: one run, or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.commands import bulk
from penstock.cli.terminal import output
from penstock.cli.terminal.labels import label_option
from penstock.cli.terminal.session import JsonCommand, Session

if TYPE_CHECKING:
    from penstock.client.recovery.views import BulkPaused, BulkResumed, PausedRun

CHILDREN = click.option("--children", is_flag=True, help="Also the runs that their steps wait for, and theirs.")
WORKFLOW = click.option("--workflow", metavar="W", help="Instead of ID...: runs of this workflow.")
STATUS = click.option(
    "--status",
    type=click.Choice(("running", "pending", "all")),
    help="With --workflow. pending: also scheduled.  [default: all]",
)
LABELS = label_option("With --workflow: only runs that have this label; repeatable.")


@click.command(cls=JsonCommand)
@bulk.RUN_IDS
@WORKFLOW
@STATUS
@CHILDREN
@bulk.AFTER
@bulk.BEFORE
@bulk.DRY_RUN
@LABELS
@bulk.TRIGGER
@bulk.PARENT
@bulk.SEARCH
@bulk.PAUSED
@click.pass_obj
def pause(session: Session, /, run_ids: tuple[str, ...], workflow: str | None, children: bool, **matching: Any) -> None:
    """Pause the runs ID..., or those of a workflow: what runs finishes, and nothing new begins."""
    bulk.either(run_ids, workflow, **matching)
    client = session.client()
    if run_ids:
        bulk.no_options("--workflow", **matching)
        bulk.each(run_ids, lambda run_id: client.pause(run_id, children=children), _line)
    else:
        _pause_all(session, workflow, {**matching, "children": children})


@click.command(cls=JsonCommand)
@bulk.RUN_IDS
@WORKFLOW
@STATUS
@CHILDREN
@bulk.AFTER
@bulk.BEFORE
@bulk.DRY_RUN
@LABELS
@bulk.TRIGGER
@bulk.PARENT
@bulk.SEARCH
@bulk.PAUSED
@click.pass_obj
def resume(
    session: Session, /, run_ids: tuple[str, ...], workflow: str | None, children: bool, **matching: Any
) -> None:
    """Let the paused runs ID..., or those of a workflow, go on."""
    bulk.either(run_ids, workflow, **matching)
    client = session.client()
    if run_ids:
        bulk.no_options("--workflow", **matching)
        bulk.each(run_ids, lambda run_id: client.resume(run_id, children=children), _line)
    else:
        _resume_all(session, workflow, {**matching, "children": children})


def _line(done: PausedRun) -> str:
    return f"{done.run_id} {done.status}" if done.paused_at is None else f"{done.run_id} paused since {done.paused_at}"


def _pause_all(session: Session, workflow: str | None, matching: dict[str, Any]) -> None:
    from penstock.client import ToPause
    from penstock.client.recovery.views import BulkPaused

    parts: list[BulkPaused] = []
    try:
        bulk.in_parts(
            "pausing",
            session.client().pause_all,
            ToPause(workflow_id=workflow, **{**matching, "labels": matching["labels"] or None}),
            parts,
        )
    finally:  # after an error, what was done before it
        done = BulkPaused(*bulk.joined(parts, lambda part: part.paused), matching["dry_run"])
        output.show(done, lambda: _show(done.paused, "paused", done))


def _resume_all(session: Session, workflow: str | None, matching: dict[str, Any]) -> None:
    from penstock.client import ToPause
    from penstock.client.recovery.views import BulkResumed

    parts: list[BulkResumed] = []
    try:
        bulk.in_parts(
            "resuming",
            session.client().resume_all,
            ToPause(workflow_id=workflow, **{**matching, "labels": matching["labels"] or None}),
            parts,
        )
    finally:  # as in _pause_all
        done = BulkResumed(*bulk.joined(parts, lambda part: part.resumed), matching["dry_run"])
        output.show(done, lambda: _show(done.resumed, "resumed", done))


def _show(run_ids: list[str], verb: str, done: BulkPaused | BulkResumed) -> None:
    for run_id in run_ids:
        click.echo(f"{run_id} would be {verb}" if done.dry_run else f"{run_id} {verb}")
    bulk.show_skipped(done.skipped)
