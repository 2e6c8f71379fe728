"""Flags out of the table of settings, for `serve` and whoever else starts a part of the service."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from penstock.config.keys import KEYS, SWITCH, Key
from penstock.config.settings import Settings, value_of

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML file with settings; default: SERVICE_CONFIG, or penstock.toml in the current directory.",
)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config` and one flag per setting. The command gets `config: Path | None` and `flags: dict[str, str]`,
    those given.

    Both go to `settings.load(flags, file=config)`, which checks them.
    """

    @wraps(command)
    def with_flags(*args: Any, **options: Any) -> Any:
        flags = {name: value for name in KEYS if (value := options.pop(name)) is not None}
        return command(*args, flags=flags, **options)

    decorated: Callable[..., Any] = with_flags
    for key in reversed(tuple(KEYS.values())):
        decorated = _option(key)(decorated)
    return CONFIG(decorated)


def _option(key: Key) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    default = key.shown(value_of(Settings(), key))
    text = f"{key.help}  [{key.kind.allowed}{f'; default: {default}' if default else ''}]"
    if key.kind is SWITCH:
        return click.option(key.flag, key.name, is_flag=False, flag_value="true", metavar="[VALUE]", help=text)
    return click.option(key.flag, key.name, metavar="VALUE", help=text)
