"""`penstock run logs` and `penstock run stream`: what the steps of a run say."""

from __future__ import annotations

import click

from penstock.cli.terminal import live_view, output
from penstock.cli.terminal.ids import RUN_ID
from penstock.cli.terminal.session import JsonCommand, Session, as_json

LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command(cls=JsonCommand)
@RUN_ID
@click.option("-f", "--follow", is_flag=True, help="Go on with lines as they are logged, until the step or run ends.")
@click.option("--step", help="Of this step only, and of what is below it, such as the elements of a map.")
@click.option("--level", type=click.Choice(LEVELS), help="This level and worse.")
@click.option("--grep", "text", metavar="TEXT", help="Lines with this text only, in any case.")
@click.pass_obj
def logs(session: Session, run_id: str, follow: bool, step: str | None, level: str | None, text: str | None) -> None:
    """Print what the steps of the run ID have logged. With --follow --json: one JSON object a line."""
    client = session.client()
    if follow:
        live_view.print_lines(client.follow_logs(run_id, step=step, level=level, text=text))
    else:
        found = client.logs(run_id, step=step, level=level, text=text)
        if as_json():
            output.show(list(found), lambda: None)
        else:
            live_view.print_lines(found)


@click.command(cls=JsonCommand)
@RUN_ID
@click.option("--step", help="Of this step only, and of what is below it.")
@click.pass_obj
def stream(session: Session, run_id: str, step: str | None) -> None:
    """Print what the steps of the run ID stream, from the beginning, until the step or the run ends. Chunks that are
    text follow each other as they are; with --json: one JSON object a line."""
    live_view.print_chunks(session.client().chunks(run_id, step=step))
