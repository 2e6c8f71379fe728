"""`penstock audit`: who has changed what, and what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import JsonCommand, Session

if TYPE_CHECKING:
    from penstock.client.access.views import AuditView

HEADERS = ("WHEN", "WHO", "WHAT", "ON", "FROM", "OUTCOME")


@click.command(cls=JsonCommand)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, newest first."
)
@click.pass_obj
def audit(session: Session, limit: int) -> None:
    """Show who has changed what, and what was refused, newest first."""
    found = list(session.client().audit(limit=limit))
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


def _row(one: AuditView) -> tuple[str, ...]:
    outcome = one.outcome if one.status is None else f"{one.outcome} ({one.status})"
    more = f", {one.more} more before" if one.more else ""
    return times.age(one.at), one.who, one.what, one.on, one.origin, outcome + more
