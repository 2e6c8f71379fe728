"""What every command shares: where the service is, `--json` in any place, and groups that import their commands
late."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.config.process.memory import uncollected

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from penstock.client import Client

JSON = "penstock.json"
CLIENT = "penstock.client"

SUMMARY_CHARS_MAX = 1000

# Exit codes
OK = 0
REFUSED = 1
USAGE = 2
UNAVAILABLE = 3
RUN_NOT_COMPLETED = 4
INTERRUPTED = 130


class Session(NamedTuple):
    """Made once per call of the command, handed down as click's `obj`."""

    url: str
    token: str | None

    def client(self) -> Client:
        """The command's only one; closed when the command ends. A person repeats a command, not the client."""
        from penstock.client import Client

        context = click.get_current_context()
        if CLIENT not in context.meta:
            context.meta[CLIENT] = context.find_root().with_resource(Client(self.url, self.token, retries=0))
        client: Client = context.meta[CLIENT]
        return client


class Lazy(NamedTuple):
    """A command that is imported when it is called; `help` is its line in the list of commands."""

    target: str
    help: str


def as_json() -> bool:
    """True when `--json` was given, before or after the subcommand."""
    return bool(click.get_current_context().meta.get(JSON))


class JsonCommand(click.Command):
    """A command that takes `--json`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())


class Group(click.Group):
    """A group that takes `--json`, with commands that may be Lazy."""

    command_class = JsonCommand

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_json_option())
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.lazy[cmd_name].target.partition(":")
        with uncollected():
            command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its summary, whole."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self._summary(ctx, name)) for name in self.list_commands(ctx) if self._is_shown(ctx, name)]
            )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, without the import of every command."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete) and self._is_shown(ctx, name)]
        return [
            *(CompletionItem(name, help=self._summary(ctx, name)) for name in names),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def _is_shown(self, ctx: click.Context, name: str) -> bool:
        command = None if name in self.lazy else self.get_command(ctx, name)
        return command is None or not command.hidden

    def _summary(self, ctx: click.Context, name: str) -> str:
        """The first sentence of its help."""
        if name in self.lazy:
            return self.lazy[name].help
        command = self.get_command(ctx, name)
        return command.get_short_help_str(SUMMARY_CHARS_MAX) if command else ""


Group.group_class = Group


def _json_option() -> click.Option:
    return click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember_json, help="Print JSON.")


def _remember_json(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[JSON] = True
