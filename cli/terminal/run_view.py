"""A run for people: its steps as a table, its events as lines, both live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct, UnsetType

from penstock.cli.terminal import live_view, output, times
from penstock.cli.terminal.session import as_json
from penstock.engine.errors import Unavailable
from penstock.engine.run.state import RunStatus

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.client import Client
    from penstock.client.views import (
        DurationsView,
        EventView,
        ItemCounts,
        MapItemView,
        RunStats,
        RunView,
        StatsBucket,
        StepView,
        WaitView,
    )

LIST_HEADERS = ("RUN", "WORKFLOW", "STATUS", "CREATED", "TOOK")
STEP_HEADERS = ("STEP", "STATUS", "ATTEMPT", "TOOK", "WORKER", "OUTPUT OR ERROR")
ITEM_HEADERS = ("ITEM", "STATUS", "ATTEMPT", "TOOK", "WORKER OR CHILD", "OUTPUT OR ERROR")
REFRESH_S = 0.2
FAILURES_MAX = 7  # in a row, each after twice the time: half a minute


def item_row(item: MapItemView) -> tuple[str, ...]:
    said = item.error or output.optional(item.output) or _size(item.output_bytes)
    took = times.took(item.started_at, item.finished_at)
    return str(item.item), item.status, str(item.attempts), took, item.child_run_id or item.worker_id or "", said


def list_row(run: RunView) -> tuple[str, ...]:
    status = f"{run.status}, paused" if run.paused_at else run.status
    return (run.run_id, run.workflow_id, status, times.age(run.created_at), _took(run))


def show_stats(found: RunStats) -> None:
    """A table of the buckets of all runs, how far they were counted, and a table of the groups, if there are any."""
    statuses = _statuses(found)
    headers = [*(status.upper() for status in statuses), "TOTAL"]
    output.table(["FROM", *headers], ([times.moment(one.at), *_counts(statuses, [one])] for one in found.buckets))
    if found.complete is False:
        click.echo(f"\ncounted back to {times.moment(found.since, 'microseconds')}: there may be older runs")
    if found.durations is not None:
        click.echo(f"\nhow long completed runs took: {_percentiles(found.durations)}")
    if found.groups is not None:
        click.echo()
        rows = ([one.name, *_counts(statuses, one.buckets), _percentiles(one.durations)] for one in found.groups)
        output.table(["NAME", *headers, "TOOK"], rows)


def _counts(statuses: Sequence[str], buckets: Sequence[StatsBucket]) -> list[str]:
    """Runs in each of these statuses, and in all."""
    counts = [sum(one.counts.get(status, 0) for one in buckets) for status in statuses]
    return list(map(str, [*counts, sum(counts)]))


def _percentiles(found: DurationsView | None) -> str:
    if found is None:
        return ""
    p50, p99 = (times.lasting(one / 1000) for one in (found.p50_ms, found.p99_ms))
    return f"{p50}, 99 of 100 within {p99}"


def _statuses(found: RunStats) -> list[str]:
    return [status for status in RunStatus if any(status in bucket.counts for bucket in found.buckets)]


def describe(run: RunView, *, past: bool = False) -> None:
    """The run's own fields, an empty line, its steps, and where their errors came from. `past`: it is shown as it was,
    so what had not ended took no time that is known."""
    output.fields(_fields(run, past=past))
    click.echo()
    output.table(STEP_HEADERS, step_rows(run, past=past))
    for step_id, step in run.steps.items():
        if isinstance(step.traceback, str):
            click.echo(f"\n{step_id}:")
            click.echo("\n".join(f"  {output.printable(line)}" for line in step.traceback.splitlines()))


def step_rows(run: RunView, *, past: bool = False) -> list[tuple[str, ...]]:
    """In the order that the service gives; outputs of finished steps, errors of failed ones."""
    return [
        (
            step_id,
            step.status,
            str(step.attempts or ""),
            times.took(step.started_at, step.finished_at)
            if step.started_at and (step.finished_at or not (run.ended or past))
            else "",
            "by hand" if step.overridden else output.optional(step.worker_id),
            output.optional(step.error or step.output) or _size(step.output_bytes) or _under_way(step),
        )
        for step_id, step in run.steps.items()
    ]


def _under_way(step: StepView) -> str:
    """What a running step without a worker waits for, or how much is done of one with a worker."""
    if step.status != "running":
        return ""
    if not isinstance(step.progress, UnsetType):
        return live_view.bar(step.progress)
    if step.wake_at is not None:
        return f"sleeps until {times.moment(step.wake_at)}"
    if not isinstance(step.waits_for, UnsetType):
        return f"waits for event {_awaited(step.waits_for)}"
    if not isinstance(step.items, UnsetType):
        return _counted(step.items)
    return "" if step.child_run_id is None else f"child {step.child_run_id}"


def _awaited(wait: WaitView) -> str:
    known_by = wait.correlate
    return wait.event + (
        "" if isinstance(known_by, UnsetType) else f", {known_by.field} {bytes(known_by.value).decode()}"
    )


def _counted(items: ItemCounts) -> str:
    counts = {"running": items.running, "queued": items.queued, "failed": items.failed}
    return ", ".join(
        [f"{items.completed} of {items.total} completed", *(f"{n} {name}" for name, n in counts.items() if n)]
    )


def _size(left_out: int | UnsetType) -> str:
    """How large a payload is that was left out."""
    return "" if isinstance(left_out, UnsetType) else f"{left_out} bytes"


def print_events(events: Iterable[EventView]) -> None:
    """One line an event, as soon as it is there: JSON with `--json`, else time, type, step and payload."""
    as_lines = as_json()
    for event in events:
        click.echo(msgspec.json.encode(event).decode() if as_lines else event_line(event))


def event_line(event: EventView) -> str:
    """`SEQ  TIME  TYPE  STEP  attempt N  iteration N  delivery N  began TIME  by WORKER  PAYLOAD`, of which the event
    may lack some."""
    counts = (
        ("attempt", event.attempt_number),
        ("iteration", event.iteration),
        ("delivery", event.delivery),
        ("began", times.moment(event.started_at, "milliseconds")),
        ("by", event.worker_id),
    )
    numbers = [f"{name} {value}" for name, value in counts if value]
    parts = [times.moment(event.timestamp, "milliseconds"), event.type, output.optional(event.step_id), *numbers]
    return "  ".join([str(event.seq), *(output.printable(part) for part in parts if part), *_payload(event)])


def _payload(event: EventView) -> list[str]:
    return [] if isinstance(event.payload, UnsetType) else [output.cell(output.optional(event.payload))]


def is_live() -> bool:
    """A terminal that shows text for people."""
    return sys.stdout.isatty() and not as_json()


def watch_live(
    client: Client, run_id: str, notes: Callable[[RunView], list[str]] = lambda run: [], *, transient: bool = False
) -> RunView:
    """Redraw the steps, and the lines below them that `notes` gives, until the run ends; returns it as it ended.
    `transient`: nothing is left of it then.

    A service that goes away is waited for, as long as the client's `follow` does. Raises Unavailable after that.
    """
    from rich import get_console
    from rich.live import Live

    run, failures = client.get_run(run_id), 0
    with Live(_drawn(run, get_console().width), auto_refresh=False, transient=transient) as live:
        while not run.ended:
            time.sleep(REFRESH_S * 2**failures)
            try:
                run, failures = client.get_run(run_id), 0
            except Unavailable:
                failures += 1
                if failures > FAILURES_MAX:
                    raise
            live.update(_drawn(run, live.console.width, [] if run.ended else notes(run)), refresh=True)
    return run


def _drawn(run: RunView, width: int, notes: Sequence[str] = ()) -> Group:
    from rich.console import Group
    from rich.text import Text

    head = Text(f"{run.run_id}  {run.workflow_id}  ") + Text(run.status, output.STATUS_STYLES.get(run.status, ""))
    rows = [[output.cell(text) for text in row] for row in step_rows(run)]
    table = output.rich_table(STEP_HEADERS, rows, width)
    return Group(head + Text(f"{_paused(run)}  {_took(run)}"), table, *map(Text, notes))


def _fields(run: RunView, *, past: bool) -> list[tuple[str, str]]:
    optional, parent = output.optional, run.parent
    return [
        ("run", run.run_id),
        ("workflow", f"{run.workflow_id} {optional(run.version)}".rstrip()),
        ("status", run.status + _paused(run)),
        ("created", times.moment(run.created_at)),
        ("run at", times.moment(run.run_at)),
        ("took", "" if past and not run.finished_at else _took(run)),
        ("input", optional(run.input) or _size(run.input_bytes)),
        ("error", optional(run.error)),
        ("compensation", optional(run.compensation)),
        ("parent", f"{parent.run_id} {parent.step_id}" if isinstance(parent, Struct) else optional(parent)),
        ("rerun of", optional(run.rerun_of)),
        ("rerun from", optional(run.rerun_from)),
        ("imported", "yes: a record that never changes" if run.imported else ""),
        ("labels", " ".join(f"{key}:{value}" for key, value in (run.labels or {}).items())),
    ]


def _took(run: RunView) -> str:
    return times.took(run.started_at, run.finished_at)


def _paused(run: RunView) -> str:
    return f", paused since {times.moment(run.paused_at)}" if run.paused_at else ""
