"""Run ids: their unique beginnings are taken wherever an id is, and what is ambiguous names the runs."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from penstock.cli import main
from penstock.cli.terminal.ids import RunId
from tests.cli.conftest import Penstock, Service

ID = "01a1fbd4e22e73c2b60e9754e7b7a067"
OTHER = "01a1fbd4e24f73459a9a947197a7d630"
RUN = {
    "run_id": ID,
    "workflow_id": "greet",
    "version": "1",
    "status": "completed",
    "created_at": "2026-01-01T00:00:00.5Z",
    "steps": {},
}
PREFIX = f"GET /runs?prefix={ID[:8]}&limit=11"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_run_id_of_every_command_may_be_its_beginning() -> None:
    takes = {
        path: parameter
        for path, command in commands(main.penstock)
        for parameter in command.params
        if parameter.name in ("run_id", "run_ids", "run") or "ID" in (parameter.metavar or "").strip("[].")
    }
    assert {("run", "status"), ("run", "cancel"), ("dlq", "list")} <= takes.keys()
    assert [] == [path for path, parameter in takes.items() if not isinstance(parameter.type, RunId)]


@pytest.mark.parametrize("given", [ID[:8], ID[:8].upper()])
def test_a_unique_beginning_stands_for_the_run(penstock: Penstock, service: Service, given: str) -> None:
    service.on(PREFIX, [RUN])
    service.on(f"GET /runs/{ID}", RUN)
    assert f"run       {ID}" == penstock("run", "status", given).out.splitlines()[0]


def test_the_whole_id_is_taken_as_it_is(penstock: Penstock, service: Service) -> None:
    service.on(f"GET /runs/{ID}", RUN)
    assert 0 == penstock("run", "status", ID).code
    assert 0 == penstock("run", "status", ID.upper()).code
    assert {f"GET /runs/{ID}"} == {request.line for request in service.requests}


def test_an_ambiguous_beginning_names_the_runs(penstock: Penstock, service: Service) -> None:
    service.on(PREFIX, [RUN, {**RUN, "run_id": OTHER, "status": "running"}])
    code, out, err = penstock("run", "cancel", ID[:8])
    assert (1, "") == (code, out)
    assert [
        f'Error: 2 runs have an id that begins with "{ID[:8]}", give more of it:',
        f"  {ID}  greet  completed  created 2026-01-01T00:00:00Z",
        f"  {OTHER}  greet  running  created 2026-01-01T00:00:00Z",
    ] == err.splitlines()
    assert [PREFIX] == [request.line for request in service.requests]


def test_of_very_many_runs_ten_are_named(penstock: Penstock, service: Service) -> None:
    service.on(PREFIX, [{**RUN, "run_id": f"{ID[:-1]}{number:x}"} for number in range(11)])
    lines = penstock("run", "status", ID[:8]).err.splitlines()
    assert 12 == len(lines)
    assert "more than 10 runs" in lines[0]
    assert "  ..." == lines[-1]


def test_a_beginning_that_no_run_has_is_1(penstock: Penstock, service: Service) -> None:
    service.on(PREFIX, [])
    assert (1, "", f'Error: no run has an id that begins with "{ID[:8]}"\n') == penstock("run", "watch", ID[:8])
