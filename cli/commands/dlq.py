"""`penstock dlq`: the dead letters, which are what failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.ids import RunId
from penstock.cli.terminal.session import Group, Session

if TYPE_CHECKING:
    from penstock.client.views import DeadLetterView

HEADERS = ("SEQ", "WHEN", "KIND", "ABOUT", "STEP", "ATTEMPTS", "ERROR")
SEQ = click.argument("seq", type=click.IntRange(min=1))


@click.group(cls=Group)
def dlq() -> None:
    """List, show, replay and discard dead letters."""


@dlq.command("list")
@click.option("--run", "run_id", metavar="ID", type=RunId(), help="Of this run only.")
@click.option("--task", metavar="TASK", help="Of this task type only.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, newest first."
)
@click.pass_obj
def list_letters(session: Session, run_id: str | None, task: str | None, limit: int) -> None:
    """List dead letters, newest first."""
    found = list(session.client().dead_letters(run_id=run_id, task=task, limit=limit))
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


@dlq.command()
@SEQ
@click.pass_obj
def show(session: Session, seq: int) -> None:
    """Show the dead letter SEQ with its payload."""
    found = session.client().dead_letter(seq)
    output.show(found, lambda: _describe(found))


@dlq.command()
@SEQ
@click.pass_obj
def replay(session: Session, seq: int) -> None:
    """Resume the failed run of the dead letter SEQ. Its dead letters are removed."""
    done = session.client().replay_dead_letter(seq)
    output.show(done, lambda: click.echo(f"{done.run_id} {done.status}"))


@dlq.command()
@SEQ
@click.pass_obj
def discard(session: Session, seq: int) -> None:
    """Remove the dead letter SEQ, for good. Its run stays as it is."""
    done = session.client().discard_dead_letter(seq)
    output.show(done, lambda: click.echo(f"{done.seq} {done.status}"))


def _row(letter: DeadLetterView) -> tuple[str, ...]:
    about = letter.run_id or letter.trigger
    return (
        str(letter.seq),
        times.age(letter.at),
        letter.kind,
        *map(output.optional, (about, letter.step_id, letter.attempts)),
        letter.error,
    )


def _describe(letter: DeadLetterView) -> None:
    output.fields(
        [
            ("seq", str(letter.seq)),
            ("when", times.moment(letter.at)),
            ("kind", letter.kind),
            ("run", output.optional(letter.run_id)),
            ("step", output.optional(letter.step_id)),
            ("task", output.optional(letter.task)),
            ("trigger", output.optional(letter.trigger)),
            ("attempts", output.optional(letter.attempts)),
            ("subject", output.optional(letter.subject)),
            ("error", letter.error),
            ("payload", output.optional(letter.payload)),
            ("payload (base64)", output.optional(letter.payload_base64)),
        ]
    )
