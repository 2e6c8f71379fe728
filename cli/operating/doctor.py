"""`penstock doctor`: what is wrong with the service, and what can be done about it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output
from penstock.cli.terminal.session import REFUSED, JsonCommand, Session

if TYPE_CHECKING:
    from penstock.client.operating.views import DoctorView


@click.command(cls=JsonCommand)
@click.option("--ignore", metavar="CHECK", multiple=True, help="Findings of this check do not count; may be repeated.")
@click.pass_obj
def doctor(session: Session, ignore: tuple[str, ...]) -> None:
    """Examine the whole service; exit code 1 when something is found, 3 when it does not answer."""
    from penstock.client.operating.views import DoctorView

    examined = session.client().doctor()
    if unknown := sorted(set(ignore) - {one.check for one in examined.checks}):
        known = ", ".join(one.check for one in examined.checks)
        raise click.UsageError(f"there is no check {', '.join(unknown)}; the checks are {known}")
    findings, notes = ([one for one in some if one.check not in ignore] for some in (examined.findings, examined.notes))
    found = DoctorView(examined.checks, findings, notes)
    output.show(found, lambda: _show(found, ignore))
    if found.findings:
        click.get_current_context().exit(REFUSED)


def _show(found: DoctorView, ignored: Collection[str]) -> None:
    counted, noted = ({one.check for one in some} for some in (found.findings, found.notes))
    for one in found.checks:
        said = "found" if one.check in counted else "note" if one.check in noted else "ok" if one.ok else "unknown"
        click.echo(f"{'ignored' if said == 'unknown' and one.check in ignored else said:<8}{one.check}")
    for finding in (*found.findings, *found.notes):
        click.echo(f"\n{finding.check}: {output.printable(finding.text)}")
        click.echo(f"  remedy: {output.printable(finding.remedy)}")
