"""`penstock demo --console`: fill a service, say where its console is, and keep it going until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from threading import Event

import click

from penstock.cli.demo.own_service import own_service
from penstock.cli.demo.starting import await_ready
from penstock.cli.demo.worker_processes import worker_processes
from penstock.cli.terminal.browser import console_url
from penstock.cli.terminal.output import to_json
from penstock.cli.terminal.session import Session, as_json
from penstock.client import Client
from penstock.demo.showcase.agenda import Agenda
from penstock.demo.showcase.filling import WORKERS, disable_triggers, register
from penstock.demo.showcase.opening import Opening
from penstock.demo.showcase.people import People
from penstock.demo.showcase.trickle import Trickle
from penstock.engine.errors import PenstockError

SECRET_BYTES = 16


def present(session: Session, *, own: bool) -> None:
    """Show it on the session's service, or on a new one of our `own`. Returns after SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # until all has started
    with ExitStack() as stack:
        environ = stack.enter_context(own_service(session.token)).variables if own else {}
        url = environ.get("SERVICE_URL", session.url)
        client = stack.enter_context(Client(url, session.token))
        if not own:
            await_ready(client, url)
        _show(stack, client, url, environ, own=own)


def _show(stack: ExitStack, client: Client, url: str, environ: Mapping[str, str], *, own: bool) -> None:
    secret = secrets.token_hex(SECRET_BYTES)
    workflows = register(client, secret)
    if not own:
        stack.callback(_leave, client)
    stack.enter_context(worker_processes(client, WORKERS, environ, url))
    people, agenda = People(), Agenda(_say_refused)
    Opening(client, people, agenda, url).begin()
    Trickle(client, people, agenda, url, secret).begin()
    _say_ready(url, workflows)
    agenda.run(_until_stopped())
    _say("stopped" if own else "stopped; its runs stay, its triggers are disabled")


def _until_stopped() -> Event:
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.set())
    return stop


def _leave(client: Client) -> None:
    """Leave nothing behind that starts runs which nobody serves."""
    try:
        disable_triggers(client)
    except PenstockError as error:
        _say_refused(error)


def _say_ready(url: str, workflows: int) -> None:
    if as_json():
        click.echo(to_json({"console": console_url(url), "workflows": workflows, "pid": os.getpid()}))
    _say(f"{workflows} workflows are running; the console shows them: {console_url(url)}")
    _say("Ctrl-C ends it")


def _say_refused(error: PenstockError) -> None:
    click.echo(f"refused: {error}", err=True)


def _say(text: str) -> None:
    if not as_json():
        click.echo(text)
