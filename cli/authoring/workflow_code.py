"""`penstock workflow export` and `lint`, of workflows that are written in Python, and `schema`, for those in JSON."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from penstock.cli.terminal import documents, output

if TYPE_CHECKING:
    from penstock.authoring import Workflow

IN_CODE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file.")
def export(target: str, out: Path | None) -> None:
    """Print the definition of a workflow that is written in Python. It is JSON; `penstock workflow export app:flow`
    finds the module from the current directory."""
    body = _loaded(target).to_json() + b"\n"
    if out is None:
        click.echo(body, nl=False)
    else:
        documents.write(out, body)


@click.command()
@click.argument("target", metavar="FILE|MODULE:NAME")
def lint(target: str) -> None:
    """Warn of what is valid in a definition and probably not meant. It is in a file (JSON or TOML, - for stdin) or in
    Python; the exit code is 1 if there is something."""
    found = _read(target).lint()

    def show() -> None:
        for finding in found:
            click.echo(output.printable(str(finding)))
        click.echo("1 finding" if len(found) == 1 else f"{len(found)} findings")

    output.show(found, show)
    if found:
        click.get_current_context().exit(1)


@click.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file.")
def schema(out: Path | None) -> None:
    """Print the JSON Schema of definitions. An editor that is given it completes names and marks what is wrong."""
    from penstock.http.openapi.definition_schema import definition_schema

    body = output.to_json(definition_schema()).encode() + b"\n"
    if out is None:
        click.echo(body, nl=False)
    else:
        documents.write(out, body)


def _read(target: str) -> Workflow[Any]:
    if IN_CODE.fullmatch(target) and not Path(target).exists():
        return _loaded(target)
    from penstock.authoring import Workflow

    with click.open_file(target, "rb") as file:
        return Workflow.from_definition(documents.definition(cast(BinaryIO, file)))


def _loaded(target: str) -> Workflow[Any]:
    """Raises BadParameter for a module, or a name in it, that is not there; what the module itself raises passes
    with its own text."""
    from penstock.authoring import Workflow

    match = IN_CODE.fullmatch(target)
    if match is None:
        raise click.BadParameter(f"{target!r} is no module with a name in it, such as app:flow")
    module = _module(match["module"])
    found: Any = module
    for part in match["name"].split("."):
        if not hasattr(found, part):
            raise click.BadParameter(f"module {match['module']} has no {match['name']}{_there(module)}")
        found = getattr(found, part)
    if not isinstance(found, Workflow):
        raise click.BadParameter(f"{target} is no workflow, but {type(found).__name__}{_there(module)}")
    return found


def _module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        is_there = find_spec(name) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise click.BadParameter(f"there is no module {name} in {Path.cwd()} or among the installed packages")
    try:
        return import_module(name)
    except Exception as error:  # whatever the user's module raises
        raise click.ClickException(f"module {name} cannot be loaded: {type(error).__name__}: {error}") from error


def _there(module: Any) -> str:
    from penstock.authoring import Workflow

    names = sorted(name for name, value in vars(module).items() if isinstance(value, Workflow))
    return f"; its workflows: {', '.join(names)}" if names else "; it has no workflows"
