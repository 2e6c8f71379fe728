"""`penstock event`: send an event."""

from __future__ import annotations

import click

from penstock.cli.terminal import documents, output
from penstock.cli.terminal.session import Group, Session


@click.group(cls=Group)
def event() -> None:
    """Send events, which start runs by event triggers."""


@event.command()
@click.argument("name")
@documents.given_option("What has happened:")
@click.option("--idempotency-key", metavar="KEY", help="The same key is the same event, however often it is sent.")
@click.pass_obj
def send(session: Session, name: str, given: str | None, idempotency_key: str | None) -> None:
    """Send the event NAME, with null if nothing is given, and print its sequence. Event triggers listen to it as
    event.NAME."""
    body = b"null" if given is None else documents.run_input(given)
    sent = session.client().send_event(name, body, idempotency_key=idempotency_key)
    output.show(sent, lambda: click.echo(f"event.{name} {sent.seq}"))
