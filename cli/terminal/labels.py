"""The option --label: a label as `key=value` or `key:value`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.engine.definition.labels import problems

F = TypeVar("F", bound=Callable[..., Any] | click.Command)

_SEPARATOR = re.compile("[:=]")


def _read(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Labels by keys. A usage error names what is none."""
    read = _by_key(given)
    if found := list(problems("labels", read)):
        raise click.BadParameter("; ".join(found))
    return read


def _by_key(given: tuple[str, ...]) -> dict[str, str]:
    read: dict[str, str] = {}
    for text in given:
        if (separator := _SEPARATOR.search(text)) is None:
            raise click.BadParameter(f"{text!r} is not key=value")
        key, value = text[: separator.start()], text[separator.end() :]
        if key in read:
            raise click.BadParameter(f"{key!r} is given more than once")
        read[key] = value
    return read


def _read_templates(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Labels by keys, whose values the service checks: they may have expressions in them."""
    return _by_key(given)


def label_option(help_text: str) -> Callable[[F], F]:
    """Give a command the argument `labels`, a dict."""
    return click.option("--label", "labels", metavar="K=V", multiple=True, callback=_read, help=help_text)


TEMPLATE = click.option(
    "--label",
    "labels",
    metavar="K=V",
    multiple=True,
    callback=_read_templates,
    help="A label of every run; ${{ expression }} in it may read `event`.",
)
LABEL = label_option("A label of the run, as often as there are; list finds the run by it.")
HAVING = label_option("Only runs with this label; of several, with all.")
