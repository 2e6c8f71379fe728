"""The `penstock` command: global options, the table of subcommands, and what its exit codes mean.

0 done · 1 the service refused · 2 wrong usage or settings · 3 service not available · 4 the run failed or was cancelled
· 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from penstock.cli.terminal.session import INTERRUPTED, OK, REFUSED, UNAVAILABLE, USAGE, Group, Lazy, Session
from penstock.config.errors import SettingsError
from penstock.engine.errors import Denied, PenstockError, Unavailable

URL_DEFAULT = "http://127.0.0.1:8080"

EXIT_CODES: Mapping[type[Exception], int] = {Unavailable: UNAVAILABLE, SettingsError: USAGE, PenstockError: REFUSED}

COMMANDS: Mapping[str, Lazy] = {
    "serve": Lazy("penstock.cli.commands.serve:serve", "Run the whole service in one go: broker, engine, HTTP."),
    "engine": Lazy("penstock.cli.commands.serve:engine", "Run engine shards against an external broker."),
    "api": Lazy("penstock.cli.commands.serve:api", "Run the HTTP front end against an external broker."),
    "drain": Lazy("penstock.cli.commands.drain:drain", "Hand over the runs of an engine's host before it goes away."),
    "workflow": Lazy("penstock.cli.commands.workflow:workflow", "Register, list, show, check and delete workflows."),
    "run": Lazy("penstock.cli.commands.run:run", "Start, follow, list, cancel and retry runs."),
    "approval": Lazy(
        "penstock.cli.commands.approval:approval", "List the steps that wait for an approval; approve or reject them."
    ),
    "dlq": Lazy("penstock.cli.commands.dlq:dlq", "List, show, replay and discard dead letters."),
    "limit": Lazy("penstock.cli.operating.limit:limit", "Show who has slots of limits and who waits; override limits."),
    "trigger": Lazy("penstock.cli.commands.trigger:trigger", "Start runs by webhooks, events, subjects and cron."),
    "event": Lazy("penstock.cli.commands.event:event", "Send events, which start runs by event triggers."),
    "task": Lazy("penstock.cli.commands.task:task", "List what waits for workers."),
    "worker": Lazy("penstock.cli.commands.worker:worker", "List the workers, or run the worker of http steps."),
    "key": Lazy("penstock.cli.commands.access.key:key", "Create, list and revoke API keys."),
    "top": Lazy("penstock.cli.operating.top.command:top", "Watch queues, workers, rates and held-up runs, live."),
    "doctor": Lazy("penstock.cli.operating.doctor:doctor", "Examine the whole service; say what is wrong with it."),
    "system": Lazy("penstock.cli.operating.system:system", "Show the broker behind the service, and its settings."),
    "audit": Lazy("penstock.cli.commands.access.audit:audit", "Show who has changed what, and what was refused."),
    "backup": Lazy("penstock.cli.recovery.backup:backup", "Copy everything that the service stores, while it runs."),
    "restore": Lazy("penstock.cli.recovery.backup:restore", "Restore a backup into an empty data directory."),
    "prune": Lazy("penstock.cli.recovery.prune:prune", "Remove runs that have ended, by age, status or workflow."),
    "config": Lazy("penstock.cli.commands.config:config", "Show the effective settings and where each came from."),
    "init": Lazy("penstock.cli.authoring.project:init", "Write a small project: a workflow in Python, with tests."),
    "dev": Lazy("penstock.cli.dev.command:dev", "Run a service and the workers of a Python file; reload on save."),
    "demo": Lazy("penstock.cli.commands.demo:demo", "Run a demonstration workflow from start to end."),
}


@click.group(cls=Group, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
@click.option(
    "--url",
    envvar="SERVICE_URL",
    default=URL_DEFAULT,
    show_default=True,
    show_envvar=True,
    help="Address of the service.",
)
@click.option("--token", envvar="SERVICE_API_TOKEN", show_envvar=True, help="Bearer token of the service.")
@click.pass_context
def penstock(ctx: click.Context, url: str, token: str | None) -> None:
    """Durable workflows: register them, run them on workers in any language, see what happened."""
    ctx.obj = Session(url, token)


def main() -> None:
    """The entry point: run the command that the arguments name, and exit with its code."""
    sys.exit(call(sys.argv[1:]))


def call(args: Sequence[str]) -> int:
    """Run one command; errors become one text on stderr. Returns the exit code."""
    try:
        result = penstock.main(list(args), prog_name="penstock", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (PenstockError, SettingsError) as error:
        return _say(error)
    return result if isinstance(result, int) else OK


def _say(error: Exception) -> int:
    from penstock.cli.terminal.output import printable

    click.echo("Error: " + "\n".join(printable(line) for line in str(error).splitlines()), err=True)
    if hint := _hint(error):
        click.echo(hint, err=True)
    return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))


def _hint(error: Exception) -> str | None:
    """What a person can do about it, where the text of the error cannot know."""
    if isinstance(error, Denied) and "bearer token" in str(error):  # not that of an approval
        return "Give one by --token or SERVICE_API_TOKEN; one that was given is wrong, revoked or expired."
    if isinstance(error, Unavailable):
        from penstock.client import Unreachable

        if isinstance(error, Unreachable):
            return "Is it running? `penstock serve` starts it; --url or SERVICE_URL say where it is."
    return None


if __name__ == "__main__":
    main()
