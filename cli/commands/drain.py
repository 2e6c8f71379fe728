"""`penstock drain`: take the work from an engine's host before it goes away."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import click

from penstock.actors.control.drain import Drained
from penstock.actors.control.drain import drain as drain_host
from penstock.broker.store import open_store
from penstock.cli.terminal import output
from penstock.cli.terminal.options import settings_options
from penstock.cli.terminal.session import JsonCommand
from penstock.config.settings import BrokerSettings, load


@click.command(cls=JsonCommand)
@click.option(
    "--host", default=socket.gethostname, show_default="this one", help="Name of the engine's host, as in /metrics."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds to wait until it is done.",
)
@settings_options
def drain(host: str, wait_s: float, flags: dict[str, str], config: Path | None) -> None:
    """Hand over all runs of the engines on a host to the others, and let them take nothing more until they are started
    again.

    Needs the settings of the broker, as `penstock engine` does. Exit code 3: it is not done yet, but goes on.
    """
    found = asyncio.run(_drained(load(flags, file=config).settings.broker, host, wait_s))
    output.show(
        found, lambda: click.echo(f"{found.host}: {found.partitions} partitions handed over in {found.seconds:g} s")
    )


async def _drained(settings: BrokerSettings, host: str, wait_s: float) -> Drained:
    async with open_store(settings, "drain") as store:
        return await drain_host(store.owners, host, wait_s)
