"""`penstock system`: what is behind the service: the broker that stores everything, and the effective settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output
from penstock.cli.terminal.session import Group, Session

if TYPE_CHECKING:
    from penstock.client.operating.views import BrokerNodeView, BrokerView, StreamView

NODES = ("NODE", "LEADS", "FOLLOWS", "STATE")
STREAMS = ("STREAM", "MESSAGES", "BYTES", "LEADER", "COPIES BEHIND")


@click.group(cls=Group)
def system() -> None:
    """Show the broker behind the service, and its settings."""


@system.command()
@click.pass_obj
def broker(session: Session) -> None:
    """Show where everything is stored: nodes, the leader of each stream, how much storage is used."""
    found = session.client().broker()
    output.show(found, lambda: _show(found))


@system.command()
@click.pass_obj
def settings(session: Session) -> None:
    """Show the settings of the running service, and where each came from; needs scope admin."""
    found = session.client().settings()
    rows = [(one.key, one.value, one.source) for one in found]
    output.show(found, lambda: output.table(("KEY", "VALUE", "FROM"), rows))


def _show(found: BrokerView) -> None:
    limit = "no known limit" if found.storage_limit_bytes is None else f"of {found.storage_limit_bytes}"
    kind = "embedded" if found.embedded else f"cluster {found.cluster}" if found.cluster else "of its own"
    fsync = f", fsync {found.fsync}" if found.fsync else ""
    click.echo(f"{output.printable(found.address)}: version {found.version}, {kind}{fsync}")
    click.echo(f"storage: {found.storage_bytes} bytes, {limit}\n")
    output.table(
        NODES, [(one.node, str(one.leads), str(one.follows), "online" if one.online else "away") for one in found.nodes]
    )
    click.echo()
    output.table(STREAMS, map(_stream, found.streams))


def _state(one: BrokerNodeView) -> str:
    return "online" if one.online else "away"


def _stream(one: StreamView) -> tuple[str, ...]:
    behind = sum(not copy.current for copy in one.copies)
    return one.stream, str(one.messages), str(one.bytes), one.leader or "none", f"{behind} of {len(one.copies)}"
