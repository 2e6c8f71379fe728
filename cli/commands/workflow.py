"""`penstock workflow`: register, call, list, versions, delete, show, validate; export, lint and schema are
in cli/authoring/."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, BinaryIO

import click
import orjson
from msgspec import Raw, UnsetType

from penstock.cli.terminal import documents, output, times
from penstock.cli.terminal.labels import LABEL
from penstock.cli.terminal.session import RUN_NOT_COMPLETED, Group, Lazy, Session, as_json
from penstock.cli.terminal.step_table import step_table
from penstock.config.limits import CALL_MS_DEFAULT, CALL_MS_MAX
from penstock.engine.definition.definitions import WorkflowDef, to_json

if TYPE_CHECKING:
    from penstock.engine.expressions.explaining import ExplainedExpression

COLUMNS = 120  # of a graph that goes to no terminal
FILE = click.argument("file", type=click.File("rb"))


CODE = "penstock.cli.authoring.workflow_code"
COMMANDS = {
    "export": Lazy(f"{CODE}:export", "Print the definition of a workflow that is written in Python."),
    "lint": Lazy(f"{CODE}:lint", "Warn of what is valid in a definition and probably not meant."),
    "schema": Lazy(f"{CODE}:schema", "Print the JSON Schema of definitions."),
}


@click.group(cls=Group, lazy=COMMANDS)
def workflow() -> None:
    """Register, call, list, show, check and delete workflows."""


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


@workflow.command()
@click.argument("name")
@documents.given_option("The run's input:")
@click.option(
    "--timeout-ms",
    type=click.IntRange(0, CALL_MS_MAX),
    default=CALL_MS_DEFAULT,
    show_default=True,
    help="How long to wait for the answer.",
)
@click.option("--idempotency-key", metavar="KEY", help="The same key gives the same run and the same answer.")
@LABEL
@click.pass_obj
def call(
    session: Session, name: str, given: str | None, timeout_ms: int, idempotency_key: str | None, labels: dict[str, str]
) -> None:
    """Start a run of the workflow NAME and print what it answers; exit code 4 when it fails, is cancelled or has not
    answered in time."""
    body = b"null" if given is None else documents.run_input(given)
    answer = session.client().call(name, body, timeout_ms=timeout_ms, idempotency_key=idempotency_key, labels=labels)
    if answer.outcome in ("completed", "responded"):
        click.echo(answer.body)
        return
    told = "it has not answered in time and goes on" if answer.outcome == "running" else answer.body.decode().strip()
    click.echo(f"run {answer.run_id} {answer.outcome}: {output.printable(told)}", err=True)
    click.get_current_context().exit(RUN_NOT_COMPLETED)


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
@click.argument("name", required=False)
@click.option("-f", "--file", type=click.File("rb"), help="The one in this file (JSON or TOML, - for stdin).")
@click.option("--version", metavar="V", help="This version of it.  [default: the latest]")
@click.option("--mermaid", "language", flag_value="mermaid", help="Print the graph in Mermaid's language.")
@click.option("--dot", "language", flag_value="dot", help="Print the graph in Graphviz's language.")
@click.pass_obj
def show(session: Session, name: str | None, file: BinaryIO | None, version: str | None, language: str | None) -> None:
    """Show the workflow NAME, or the one in a file, with the graph of its steps."""
    found = _from_file(file) if file is not None else None
    if (name is None) == (file is None) or (file is not None and version is not None):
        raise click.UsageError("either NAME, perhaps with --version, or --file is needed")
    if found is None:
        assert name is not None
        found = session.client().workflow(name, version)
    output.show(_raw(found), lambda: _draw(found, language))


@workflow.command()
@FILE
def validate(file: BinaryIO) -> None:
    """Check the workflow in FILE (JSON or TOML, - for stdin) without a service, and explain its expressions: where each
    stands, what it reads, and what is wrong with it."""
    from penstock.engine.validation import explained, parse

    document = orjson.loads(documents.definition(file))
    expressions = explained(document)
    if expressions and not as_json():
        output.table(("STEP", "FIELD", "EXPRESSION", "READS", "PROBLEM"), map(_explained_row, expressions))
        click.echo()
    found = parse(document)
    steps = "1 step" if len(found.steps) == 1 else f"{len(found.steps)} steps"
    text = f"valid: {found.name}, version {found.version}, {steps}"
    more = {"expressions": expressions} if expressions else {}
    output.show({"valid": True, "name": found.name, "version": found.version, **more}, lambda: click.echo(text))


def _explained_row(found: ExplainedExpression) -> tuple[str, ...]:
    notes = "; ".join([*found.problems, *(f"warning: {warning}" for warning in found.warnings)])
    return found.step or "(workflow)", found.field, found.expression, ", ".join(found.reads), notes


def _from_file(file: BinaryIO) -> WorkflowDef:
    """Raises Invalid with every problem."""
    from penstock.engine.validation import parse

    return parse(orjson.loads(documents.definition(file)))


def _raw(definition: WorkflowDef) -> Raw:
    return Raw(to_json(definition))


def _draw(definition: WorkflowDef, language: str | None) -> None:
    from penstock.cli.graph import drawing, exports
    from penstock.cli.graph.nodes import GraphNode, label

    nodes = [
        GraphNode(step.id, output.printable(label(step.id, step.type)), step.depends_on) for step in definition.steps
    ]
    if language is None:
        _describe(definition, drawing.draw(nodes, shutil.get_terminal_size((COLUMNS, 0)).columns))
    else:
        lines = exports.mermaid(nodes) if language == "mermaid" else exports.dot(nodes, definition.name)
        click.echo("\n".join(lines))


def _describe(definition: WorkflowDef, picture: list[str]) -> None:
    output.fields(
        [
            ("workflow", definition.name),
            ("version", definition.version),
            ("timeout", definition.timeout or ""),
            ("on failure", definition.on_failure.workflow if definition.on_failure else ""),
            ("sticky", definition.sticky or ""),
            ("description", definition.description or ""),
        ]
    )
    click.echo("\n".join(["", *picture, ""]))
    output.table(*step_table(definition.steps))
