"""`penstock worker`: the connected workers, and the built-in worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import Group, Lazy, Session

if TYPE_CHECKING:
    from penstock.client.views import WorkerView

HEADERS = ("WORKER", "TASKS", "GROUP", "MAX", "VIA", "LANGUAGE", "HOST", "PID", "SEEN")


COMMANDS = {"http": Lazy("penstock.cli.commands.http_worker:http_worker", "Make the requests of http steps.")}


@click.group(cls=Group, lazy=COMMANDS)
def worker() -> None:
    """List the workers, or run the worker of http steps."""


@worker.command("list")
@click.pass_obj
def list_workers(session: Session) -> None:
    """List the workers that are connected now."""
    found = session.client().workers()
    output.show(found, lambda: output.table(HEADERS, [_row(item) for item in found]))


def _row(item: WorkerView) -> tuple[str, ...]:
    known = (item.transport, item.language, item.hostname, item.pid)
    fields = (item.worker_id, ", ".join(item.task_types), output.optional(item.worker_group), str(item.max_tasks))
    return (*fields, *map(output.optional, known), times.age(item.last_seen))
