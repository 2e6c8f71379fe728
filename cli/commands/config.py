"""`penstock config`: the settings that a service started here would have."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.terminal import output
from penstock.cli.terminal.options import settings_options
from penstock.cli.terminal.session import JsonCommand
from penstock.config.keys import KEYS
from penstock.config.settings import load, value_of


@click.command(cls=JsonCommand)
@settings_options
def config(config: Path | None, flags: dict[str, str]) -> None:
    """Show the effective settings and where each came from; takes the same flags as `serve`. Secrets are not shown."""
    settings, sources = load(flags, file=config)
    shown = {name: key.shown(value_of(settings, key)) for name, key in KEYS.items()}
    values = {name: {"value": shown[name], "source": sources[name]} for name in KEYS}
    output.show(
        values, lambda: output.table(("KEY", "VALUE", "FROM"), [(name, shown[name], sources[name]) for name in KEYS])
    )
