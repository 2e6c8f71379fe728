"""`penstock init`: a small project, to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from penstock.cli.authoring.project_files import INPUT, project_files
from penstock.engine.errors import Conflict


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".", metavar="[DIR]")
def init(directory: Path) -> None:
    """Write a small project into DIR, by default the current directory: a workflow in Python with its tasks, and tests
    that pass. Nothing is written where one of its files exists."""
    files = project_files(directory.resolve().name)
    if there := [name for name in files if (directory / name).exists()]:
        raise Conflict(f"{directory} has {', '.join(there)} already; nothing was written")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    click.echo(f"written into {directory}: {', '.join(files)}")
    click.echo("next, and then, in another terminal:\n")
    click.echo(f"  penstock dev {shlex.quote(str(directory / 'app.py'))}")
    click.echo(f"  penstock workflow call order --input {shlex.quote(INPUT)}")
