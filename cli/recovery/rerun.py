"""`penstock run rerun`, and `penstock run step`: what an operator does about one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.commands import bulk
from penstock.cli.terminal import documents, output
from penstock.cli.terminal.ids import RUN_ID, RunId
from penstock.cli.terminal.labels import label_option
from penstock.cli.terminal.session import Group, JsonCommand, Session

if TYPE_CHECKING:
    from penstock.client.recovery.views import BulkRerun

STEP = click.argument("step_id", metavar="STEP")


@click.command(cls=JsonCommand)
@click.argument("run_id", metavar="[ID]", required=False, type=RunId())
@click.option("--from", "from_step", metavar="STEP", help="Take over what does not depend on this step.")
@documents.given_option("In place of the run's input:")
@click.option(
    "--output", "outputs", metavar="STEP=JSON", multiple=True, help="In place of one that is taken over; repeatable."
)
@click.option("--latest", is_flag=True, help="With the newest definition.  [default: the run's own]")
@click.option("--idempotency-key", metavar="KEY", help="The same key gives the same new run, however often it is sent.")
@click.option("--workflow", metavar="W", help="Instead of ID: runs of this workflow that have ended.")
@click.option(
    "--status",
    type=click.Choice(("failed", "completed", "cancelled", "all")),
    help="With --workflow.  [default: failed]",
)
@click.option("--again", is_flag=True, help="With --workflow: also runs that were rerun already.")
@bulk.AFTER
@bulk.BEFORE
@bulk.DRY_RUN
@label_option("A label of the new run, in place of those it had; with --workflow, only runs that have it; repeatable.")
@click.pass_obj
def rerun(
    session: Session,
    /,
    run_id: str | None,
    from_step: str | None,
    given: str | None,
    outputs: tuple[str, ...],
    latest: bool,
    idempotency_key: str | None,
    workflow: str | None,
    again: bool,
    labels: dict[str, str],
    **matching: Any,
) -> None:
    """Start a new run of the run ID, or of those of a workflow, which have ended: from the beginning, or --from a
    step."""
    bulk.either(() if run_id is None else (run_id,), workflow)
    client = session.client()
    if run_id is None:
        bulk.no_options("ID", input=given, output=outputs, idempotency_key=idempotency_key)
        _rerun_all(
            session,
            workflow or "",
            {**matching, "once": not again, "from_step": from_step, "latest": latest, "labels": labels or None},
        )
        return
    bulk.no_options("--workflow", again=again, **matching)
    done = client.rerun(
        run_id,
        from_step,
        None if given is None else documents.run_input(given),
        outputs=dict(map(_output, outputs)),
        latest=latest,
        labels=labels or None,
        idempotency_key=idempotency_key,
    )
    output.show(done, lambda: click.echo(done.run_id))


@click.group(cls=Group)
def step() -> None:
    """Try a step of a run again now, or complete it by hand."""


@step.command()
@RUN_ID
@STEP
@click.pass_obj
def retry(session: Session, run_id: str, step_id: str) -> None:
    """Have the failed run ID go on at STEP, or begin the next attempt of STEP now, if it waits for that."""
    done = session.client().retry_step(run_id, step_id)
    outcome = "resumed" if done.resumed else f"attempt {done.attempt} begins"
    output.show(done, lambda: click.echo(f"{run_id} {step_id} {outcome}"))


@step.command()
@RUN_ID
@STEP
@click.option("--output", "given", metavar="JSON", help="What the step returns.  [default: null]")
@click.pass_obj
def skip(session: Session, run_id: str, step_id: str, given: str | None) -> None:
    """Complete STEP of the run ID by hand. Its attempt is given up; a failed run goes on."""
    body = b"null" if given is None else documents.run_input(given, "--output")
    done = session.client().skip_step(run_id, step_id, body)
    output.show(done, lambda: click.echo(f"{run_id} {step_id} {done.status}"))


def _output(given: str) -> tuple[str, bytes]:
    step_id, found, value = given.partition("=")
    if not found:
        raise click.UsageError("--output must be STEP=JSON")
    return step_id, documents.run_input(value, "--output STEP=")


def _rerun_all(session: Session, workflow: str, matching: dict[str, Any]) -> None:
    from penstock.client import ToRerun
    from penstock.client.recovery.views import BulkRerun

    parts: list[BulkRerun] = []
    try:
        bulk.in_parts("starting", session.client().rerun_all, ToRerun(workflow_id=workflow, **matching), parts)
    finally:  # after an error, what was done before it
        done = BulkRerun(*bulk.joined(parts, lambda part: part.rerun), matching["dry_run"])
        output.show(done, lambda: _show(done))


def _show(done: BulkRerun) -> None:
    for one in done.rerun:
        click.echo(f"{one.original_run_id} {f'again as {one.new_run_id}' if one.new_run_id else 'would be rerun'}")
    bulk.show_skipped(done.skipped)
