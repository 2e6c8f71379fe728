"""`penstock worker http`: the worker of http steps."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from penstock.cli.terminal.options import settings_options
from penstock.cli.terminal.session import Session
from penstock.config.log_setup import configure
from penstock.config.settings import load
from penstock.worker.http_tasks.worker import HttpTaskWorker
from penstock.worker.worker import GRACE_S, TRANSPORTS


@click.command()
@click.option("--worker-id", metavar="NAME", help="Default: host, process and something random.")
@click.option("--group", metavar="GROUP", help="Take only http steps with this worker_group.")
@click.option(
    "--transport",
    type=click.Choice(TRANSPORTS),
    default=TRANSPORTS[0],
    show_default=True,
    help="Straight to the broker, or over HTTP by the worker bridge at --url (with SERVICE_BRIDGE_TOKEN).",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(0),
    default=GRACE_S,
    show_default=True,
    help="Seconds that running requests have to finish in when it stops.",
)
@settings_options
@click.pass_obj
def http_worker(
    session: Session,
    worker_id: str | None,
    group: str | None,
    transport: Literal["nats", "bridge"],
    grace_s: float,
    flags: dict[str, str],
    config: Path | None,
) -> None:
    """Make the requests of http steps.

    Addresses that are not public are refused unless http_allow lists them. A secret that a header names is the variable
    PENSTOCK_SECRET_NAME of this process, or the file NAME in secrets_dir. It works until SIGTERM or SIGINT.
    """
    settings = load(flags, file=config).settings
    configure(settings.log, "http-worker")
    HttpTaskWorker(
        settings, worker_id=worker_id, group=group, transport=transport, url=session.url, grace_s=grace_s
    ).run()
