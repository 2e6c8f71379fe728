"""`penstock key`: create, list and revoke API keys."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import Group, Session, as_json

if TYPE_CHECKING:
    from penstock.client.access.views import CreatedKey, KeyView

HEADERS = ("NAME", "SCOPE", "WORKFLOWS", "CREATED", "BY", "EXPIRES")
SCOPES = ("read", "operate", "admin")
NAME = click.argument("name")


@click.group(cls=Group)
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@NAME
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="What it may do; each includes those before.")
@click.option("--workflow", metavar="PATTERN", help="For these workflows only; * stands for any characters.")
@click.option("--expires", metavar="DURATION", help="How long it is valid, such as 90d; default: until it is revoked.")
@click.pass_obj
def create(session: Session, name: str, scope: str, workflow: str | None, expires: str | None) -> None:
    """Create the key NAME and print it: it cannot be shown again. The first one must have scope admin."""
    made = session.client().create_key(name, scope, workflow=workflow, expires=expires)
    output.show(made, lambda: _show(made))


@key.command("list")
@click.pass_obj
def list_keys(session: Session) -> None:
    """List the keys, by name."""
    found = session.client().keys()
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


@key.command()
@NAME
@click.pass_obj
def revoke(session: Session, name: str) -> None:
    """Revoke the key NAME; it is refused within a second."""
    done = session.client().revoke_key(name)
    output.show(done, lambda: click.echo(f"{done.name} {done.status}"))


def _show(made: CreatedKey) -> None:
    """The key alone on stdout, so that a script can take it."""
    click.echo(made.key)
    if sys.stdout.isatty() and not as_json():
        click.echo("Keep it: it cannot be shown again. Give it by --token or SERVICE_API_TOKEN.", err=True)


def _row(one: KeyView) -> tuple[str, ...]:
    return (
        one.name,
        one.scope,
        one.workflow or "*",
        times.age(one.created_at),
        output.optional(one.by),
        times.moment(one.expires_at) if one.expires_at else "never",
    )
