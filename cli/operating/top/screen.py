"""Draws a state of the service on a screen of any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.cli.operating.top.observing import HELD_MAX, HeldRun, Observation
from penstock.cli.terminal import output, times
from penstock.client.views import TaskQueueView, WorkerView
from penstock.engine.waiting.reasons import WaitingReason

if TYPE_CHECKING:
    from rich.console import Group

QUEUE_HEADERS = ("TASK TYPE", "GROUP", "WAITING", "IN HAND", "OLDEST", "WORKERS")
WORKER_HEADERS = ("WORKER", "SLOTS", "VIA", "HOST", "SEEN", "SERVES")
HELD_HEADERS = ("RUN", "WORKFLOW", "AGE", "STEP", "REASON", "WAITS BECAUSE")
KEYS = "q quit · s sort · r reverse · space pause"
TABLE_LINES = 3  # a title, the headers and a line below them
ORDERS: Mapping[str, Callable[[TaskQueueView], Any]] = {
    "waiting": lambda one: (-one.waiting - one.in_hand, one.task),
    "oldest": lambda one: (one.oldest_at or "~", one.task),
    "workers": lambda one: (one.workers, -one.waiting, one.task),
    "type": lambda one: (one.task, one.worker_group or ""),
}


class Look(Struct, frozen=True):
    """How it is shown: by which order, and whether it stands still."""

    order: str = next(iter(ORDERS))
    reverse: bool = False
    paused: bool = False


def heading(seen: Observation, look: Look) -> list[str]:
    """The lines above the tables."""
    runs = "  ".join(f"{status} {count}" for status, count in sorted(seen.runs.items()))
    rates = "  ".join(f"{name} {rate:.1f}/s" for name, rate in seen.rates.items())
    state = f"  [{'paused, ' if look.paused else ''}by {look.order}{', reversed' if look.reverse else ''}]"
    problem = [f"no answer: {output.printable(seen.problem)}"] if seen.problem else []
    return [
        f"penstock top{state}",
        f"runs   {runs or 'none'}",
        f"rates  {rates or 'after the next look'}",
        *reasons(seen.held),
        *problem,
    ]


def queue_rows(seen: Observation, look: Look) -> list[tuple[str, ...]]:
    ordered = sorted(seen.queues, key=ORDERS[look.order], reverse=look.reverse)
    return [
        (
            one.task,
            output.optional(one.worker_group),
            str(one.waiting),
            str(one.in_hand),
            times.age(one.oldest_at),
            str(one.workers) if one.workers else "none",
        )
        for one in ordered
    ]


def worker_rows(workers: Sequence[WorkerView]) -> list[tuple[str, ...]]:
    return [
        (
            one.worker_id,
            str(one.max_tasks),
            output.optional(one.transport),
            output.optional(one.hostname),
            times.age(one.last_seen),
            output.cell(", ".join(one.task_types)),
        )
        for one in workers
    ]


def held_rows(held: Sequence[HeldRun]) -> Iterator[tuple[str, ...]]:
    for run in held:
        for one in run.waiting:
            known = (run.run_id, run.workflow_id, times.age(run.created_at))
            yield (*known, one.step_id or "", one.reason, output.printable(one.text))


def reasons(held: Sequence[HeldRun]) -> list[str]:
    """The line that counts the runs by what they wait for, with the task type if there is one; none if nothing does."""
    counts = Counter(cause for run in held for cause in {_cause(one) for one in run.waiting})
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [f"held   {'  '.join(f'{cause} {count}' for cause, count in ordered)}"] if counts else []


def _cause(one: WaitingReason) -> str:
    task = one.details.get("task")
    return f"{one.reason} ({output.printable(task)})" if isinstance(task, str) else str(one.reason)


def plain(seen: Observation, look: Look) -> None:
    """Print one whole screen, for a pipe."""
    import click

    for line in heading(seen, look)[1:]:
        click.echo(line)
    for headers, rows in (
        (QUEUE_HEADERS, queue_rows(seen, look)),
        (HELD_HEADERS, list(held_rows(seen.held))),
        (WORKER_HEADERS, worker_rows(seen.workers)),
    ):
        click.echo()
        output.table(headers, rows)


def drawn(seen: Observation, look: Look, width: int, height: int) -> Group:
    """The screen: what does not fit is left out, and the titles say of how much."""
    from rich.console import Group
    from rich.text import Text

    head = [Text(line, no_wrap=True, overflow="ellipsis") for line in heading(seen, look)]
    queues, held, workers = queue_rows(seen, look), list(held_rows(seen.held)), worker_rows(seen.workers)
    room = max(0, height - len(head) - 1 - 3 * TABLE_LINES)
    shares = _shares(room, [len(queues), len(held), len(workers)])
    parts = zip(
        (f"queues ({len(queues)})", f"held up ({len(seen.held)} of at most {HELD_MAX} looked at)", "workers"),
        (QUEUE_HEADERS, HELD_HEADERS, WORKER_HEADERS),
        (queues, held, workers),
        shares,
        strict=True,
    )
    tables = [_table(title, headers, rows, count, width) for title, headers, rows, count in parts if count or not rows]
    return Group(*head, *tables, Text(KEYS, style="dim", no_wrap=True))


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many lines each table gets: what one does not need is the others'."""
    shares = [0] * len(wanted)
    while room > 0 and (open_ := [at for at, count in enumerate(wanted) if shares[at] < count]):
        for at in open_[:room]:
            shares[at] += 1
            room -= 1
    return shares


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], count: int, width: int) -> Any:
    from rich import box
    from rich.table import Table

    more = len(rows) - count
    grid = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        width=width,
        title=title + (f", {more} more" if more > 0 else ""),
        title_justify="left",
        title_style="bold",
    )
    for at, header in enumerate(headers):
        last = at == len(headers) - 1
        grid.add_column(header, no_wrap=True, overflow="ellipsis", ratio=1 if last else None)
    for row in rows[:count]:
        grid.add_row(*map(output.cell, row))
    return grid
