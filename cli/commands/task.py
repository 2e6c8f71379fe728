"""`penstock task`: the tasks that wait for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output, times
from penstock.cli.terminal.session import Group, Session

if TYPE_CHECKING:
    from penstock.client.views import TaskQueueView

HEADERS = ("TYPE", "GROUP", "WAITING", "IN HAND", "OLDEST", "WORKERS")


@click.group(cls=Group)
def task() -> None:
    """List what waits for workers."""


@task.command("list")
@click.pass_obj
def list_tasks(session: Session) -> None:
    """List the task types: how many tasks wait and are in hand, the oldest of them, and how many workers there are for
    the type."""
    found = session.client().tasks()
    output.show(found, lambda: output.table(HEADERS, map(_row, found)))


def _row(item: TaskQueueView) -> tuple[str, ...]:
    numbers = (str(item.waiting), str(item.in_hand))
    return (item.task, output.optional(item.worker_group), *numbers, times.age(item.oldest_at), str(item.workers))
