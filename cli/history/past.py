"""`penstock run show`, `diff`, `graph`, `export`, `import`: a run as it was, beside another one, as a graph, as a
file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from penstock.cli.terminal import documents, output
from penstock.cli.terminal.ids import RUN_ID, RunId
from penstock.cli.terminal.session import JsonCommand, Session

if TYPE_CHECKING:
    from penstock.client.history.views import DiffView, GraphView

COLUMNS = 80


@click.command(cls=JsonCommand)
@RUN_ID
@click.option(
    "--at",
    "seq",
    metavar="SEQ",
    type=click.IntRange(min=0),
    help="As it was at this event.  [default: as it is]",
)
@click.pass_obj
def show(session: Session, run_id: str, seq: int | None) -> None:
    """Show the run ID, now or as it was. `penstock run events` has the sequences."""
    from penstock.cli.terminal import run_view

    client = session.client()
    found = client.get_run(run_id) if seq is None else client.run_at(run_id, seq)
    output.show(found, lambda: run_view.describe(found, past=seq is not None))


@click.command(cls=JsonCommand)
@RUN_ID
@click.argument("other", metavar="OTHER", type=RunId())
@click.pass_obj
def diff(session: Session, run_id: str, other: str) -> None:
    """Compare the runs ID and OTHER, step by step."""
    found = session.client().diff(run_id, other)
    output.show(found, lambda: _compare(found))


@click.command(cls=JsonCommand)
@RUN_ID
@click.option("--mermaid", "language", flag_value="mermaid", help="Print it in Mermaid's language.")
@click.option("--dot", "language", flag_value="dot", help="Print it in Graphviz's language.")
@click.pass_obj
def graph(session: Session, run_id: str, language: str | None) -> None:
    """Draw the graph of the run ID: its steps with their statuses, planned ones, handlers and compensations."""
    found = session.client().graph(run_id)
    output.show(found, lambda: _draw(found, run_id, language))


@click.command(cls=JsonCommand)
@RUN_ID
@click.option("-o", "--output", "path", metavar="FILE", type=click.Path(path_type=Path), help="[default: stdout]")
@click.pass_obj
def export(session: Session, run_id: str, path: Path | None) -> None:
    """Export the run ID with its definition and all its events, as JSON."""
    body = session.client().export(run_id)
    if path is None:
        click.echo(body)
    else:
        documents.write(path, body)
        click.echo(f"{len(body)} bytes written to {path}", err=True)


@click.command("import", cls=JsonCommand)
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.pass_obj
def import_run(session: Session, file: BinaryIO) -> None:
    """Import a run from FILE, which `penstock run export` has written (- for stdin). It stays as it is: a record."""
    found = session.client().import_run(file.read())
    output.show(
        found, lambda: click.echo(f"{found.run_id}  {found.workflow_id}  {found.status}, {found.events} events")
    )


def _compare(found: DiffView) -> None:
    rows = [("(run)", "differs" if found.run.differs else "same", ", ".join(found.run.fields))]
    for step_id, step in found.steps.items():
        missing = "only in the second" if not step.a else "only in the first" if not step.b else ""
        rows.append((step_id, "differs" if step.differs else "same", missing or ", ".join(step.fields)))
    output.table(("STEP", "", "IN"), rows)


def _draw(found: GraphView, run_id: str, language: str | None) -> None:
    from penstock.cli.graph import drawing, exports
    from penstock.cli.graph.nodes import GraphNode, label

    before: dict[str, list[str]] = {node.id: [] for node in found.nodes}
    for edge in found.edges:
        before[edge.to].append(edge.from_)
    nodes = [
        GraphNode(node.id, output.printable(f"{label(node.id, node.type)} · {node.status}"), tuple(before[node.id]))
        for node in found.nodes
    ]
    if language is None:
        lines = drawing.draw(nodes, shutil.get_terminal_size((COLUMNS, 0)).columns)
    else:
        lines = exports.mermaid(nodes) if language == "mermaid" else exports.dot(nodes, run_id)
    click.echo("\n".join(lines))
