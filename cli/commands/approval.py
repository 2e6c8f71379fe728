"""`penstock approval`: which steps wait for a person, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.ids import RunId
from penstock.cli.terminal.session import Group, Session

if TYPE_CHECKING:
    from penstock.client.views import ApprovalView

HEADERS = ("RUN", "STEP", "WORKFLOW", "ASKED", "EXPIRES", "DESCRIPTION")


@click.group(cls=Group)
def approval() -> None:
    """List the steps that wait for an approval; approve or reject them."""


@approval.command("list")
@click.option("--workflow", metavar="W", help="Of this workflow only.")
@click.pass_obj
def list_approvals(session: Session, workflow: str | None) -> None:
    """List the steps that wait for an approval, those of the oldest run first."""
    found = list(session.client().approvals(workflow=workflow))
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


def _decision(command: Callable[..., None]) -> Callable[..., None]:
    """What both decisions take."""
    for parameter in (
        click.option("--token", help="The approval's one-time token, of who has no right to the service."),
        click.option("--by", "approved_by", metavar="NAME", help="Who decides; kept with the decision."),
        click.option("--comment", help="Kept with the decision."),
        click.argument("step"),
        click.argument("run_id", metavar="RUN", type=RunId()),
    ):
        command = parameter(command)
    return command


@approval.command()
@_decision
@click.pass_obj
def approve(session: Session, /, **options: Any) -> None:
    """Approve STEP of the run RUN, by the right of whoever may use the service: the run goes on."""
    _decide(session, "approve", **options)


@approval.command()
@_decision
@click.pass_obj
def reject(session: Session, /, **options: Any) -> None:
    """Reject STEP of the run RUN, by the right of whoever may use the service: the step fails, and the run with it."""
    _decide(session, "reject", **options)


def _decide(
    session: Session,
    action: str,
    run_id: str,
    step: str,
    token: str | None,
    comment: str | None,
    approved_by: str | None,
) -> None:
    client = session.client()
    if token is None:
        done = client.decide_by_right(run_id, step, action, comment=comment, approved_by=approved_by)
    else:
        done = client.decide(run_id, step, token, action, comment=comment, approved_by=approved_by)
    output.show(done, lambda: click.echo(f"{done.status} {done.step} of {done.run_id}"))


def _row(item: ApprovalView) -> tuple[str, ...]:
    moments = (times.age(item.requested_at), times.age(item.expires_at))
    return (item.run_id, item.step_id, item.workflow_id, *moments, output.optional(item.description))
