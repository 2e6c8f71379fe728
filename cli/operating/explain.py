"""`penstock run explain`: why a run waits, down to the child that it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.ids import RUN_ID
from penstock.cli.terminal.session import JsonCommand, Session
from penstock.engine.waiting.reasons import Reason, WaitingReason

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.operating.views import ExplanationView

CHILDREN_MAX = 16  # runs in a chain
NOTHING = "nothing: workers carry it out"


@click.command(cls=JsonCommand)
@RUN_ID
@click.pass_obj
def explain(session: Session, run_id: str) -> None:
    """Say why the run ID waits, and what can be done. Of a run that waits for a child, also why the child waits."""
    client = session.client()
    found = client.explain(run_id)
    output.show(found, lambda: _show(client, run_id, found))


def _show(client: Client, run_id: str, found: ExplanationView) -> None:
    for depth, (each_id, explanation) in enumerate(_chain(client, run_id, found)):
        indent = "  " * depth
        click.echo(f"{indent}{each_id} {explanation.status}{_summary(explanation)}")
        for one in explanation.waiting:
            click.echo(f"{indent}  {one.reason:<18}  {_how_long(one)}")
            click.echo(f"{indent}    {output.printable(one.text)}")


def _summary(explanation: ExplanationView) -> str:
    if explanation.waiting:
        return ", waits:"
    return "" if explanation.status in ("completed", "failed", "cancelled") else f", waits for {NOTHING}"


def _how_long(one: WaitingReason) -> str:
    until = "" if one.until is None else f", until {times.moment(one.until)}"
    return f"since {times.moment(one.since)}{until}"


def _chain(client: Client, run_id: str, found: ExplanationView) -> Iterator[tuple[str, ExplanationView]]:
    """The run, the first child that it waits for, and so on."""
    yield run_id, found
    for _ in range(CHILDREN_MAX):
        child = next((one.details["child_run_id"] for one in found.waiting if one.reason is Reason.WAITING_CHILD), None)
        if not isinstance(child, str) or not child:
            return
        found = client.explain(child)
        yield child, found
