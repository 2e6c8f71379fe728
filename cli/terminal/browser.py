"""The address of the console's pages, and opening one of them in a browser."""

from __future__ import annotations

from urllib.parse import quote

import click

CONSOLE = "/console"
OPEN = click.option("--open", "page", is_flag=True, help="Open the run's page of the console in a browser.")


def console_url(url: str, run_id: str | None = None) -> str:
    """The console of the service at `url`, or its page of a run."""
    console = url.rstrip("/") + CONSOLE
    return console if run_id is None else f"{console}/runs/{quote(run_id, safe='')}"


def open_run(url: str, run_id: str) -> None:
    """Open the run's page, and print its address to stderr, also that there is no browser."""
    import webbrowser

    address = console_url(url, run_id)
    click.echo(address, err=True)
    try:
        opened = webbrowser.open(address)
    except (webbrowser.Error, OSError):
        opened = False
    if not opened:
        click.echo("no browser was found here: open the address by hand", err=True)
