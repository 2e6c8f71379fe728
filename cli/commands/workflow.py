"""`penstock workflow`: register, list, versions, delete, show, validate."""

from __future__ import annotations

from typing import BinaryIO

import click
import orjson
from msgspec import Raw, UnsetType

from penstock.cli.terminal import documents, output, times
from penstock.cli.terminal.session import Group, Session, as_json
from penstock.engine.definition.definitions import WorkflowDef, to_json

FILE = click.argument("file", type=click.File("rb"))


@click.group(cls=Group)
def workflow() -> None:
    """Register, list, show, check and delete workflows."""


@workflow.command()
@FILE
@click.pass_obj
def register(session: Session, file: BinaryIO) -> None:
    """Register the workflow in FILE (JSON or TOML, - for stdin), or replace the one of that name."""
    answer = session.client().register(documents.definition(file))
    output.show(answer, lambda: click.echo(f"{answer.status} {answer.name}"))
    if not as_json() and not isinstance(answer.warnings, UnsetType):
        for text in answer.warnings:
            click.echo(f"Warning: {output.printable(text)}", err=True)


@workflow.command("list")
@click.pass_obj
def list_workflows(session: Session) -> None:
    """List the workflows."""
    found = session.client().workflows()
    rows = [(item.name, item.version, str(len(item.steps)), item.description or "") for item in found]
    output.show(
        [_raw(item) for item in found], lambda: output.table(("WORKFLOW", "VERSION", "STEPS", "DESCRIPTION"), rows)
    )


@workflow.command()
@click.argument("name")
@click.pass_obj
def versions(session: Session, name: str) -> None:
    """List the versions of the workflow NAME, newest first."""
    found = session.client().versions(name)
    rows = [(one.version, times.age(one.registered_at), one.digest) for one in found]
    output.show(found, lambda: output.table(("VERSION", "REGISTERED", "DIGEST"), rows))


@workflow.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also while triggers or runs need it.")
@click.pass_obj
def delete(session: Session, name: str, force: bool) -> None:
    """Delete the workflow NAME with all its versions. Its runs keep their definitions; with --force, what comes to its
    triggers becomes dead letters."""
    done = session.client().delete_workflow(name, force=force)
    output.show(done, lambda: click.echo(f"{done.status} {done.name}"))


@workflow.command()
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show the workflow NAME with its steps."""
    found = session.client().workflow(name)
    output.show(_raw(found), lambda: _describe(found))


@workflow.command()
@FILE
def validate(file: BinaryIO) -> None:
    """Check the workflow in FILE (JSON or TOML, - for stdin), without a service."""
    from penstock.engine.validation import parse

    found = parse(orjson.loads(documents.definition(file)))
    steps = "1 step" if len(found.steps) == 1 else f"{len(found.steps)} steps"
    text = f"valid: {found.name}, version {found.version}, {steps}"
    output.show({"valid": True, "name": found.name, "version": found.version}, lambda: click.echo(text))


def _raw(definition: WorkflowDef) -> Raw:
    return Raw(to_json(definition))


def _describe(definition: WorkflowDef) -> None:
    output.fields(
        [
            ("workflow", definition.name),
            ("version", definition.version),
            ("timeout", definition.timeout or ""),
            ("description", definition.description or ""),
        ]
    )
    click.echo()
    rows = [
        (step.id, step.task, str(step.type), ", ".join(step.depends_on), step.timeout or "")
        for step in definition.steps
    ]
    output.table(("STEP", "TASK", "TYPE", "DEPENDS ON", "TIMEOUT"), rows)
