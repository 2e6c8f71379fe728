"""`penstock run cancel`, `retry` and `bulk`: what is done to many runs at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from uuid import uuid4

import click
from msgspec import UNSET, UnsetType

from penstock.cli.terminal import documents, output
from penstock.cli.terminal.ids import RunId
from penstock.cli.terminal.labels import HAVING, LABEL
from penstock.cli.terminal.session import REFUSED, JsonCommand, Session
from penstock.cli.terminal.times import Past
from penstock.config.limits import MATCHING_RUNS_MAX
from penstock.engine.errors import PenstockError, Unavailable

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.bodies import RunSelection
    from penstock.client.recovery.views import BulkPaused, BulkRerun, BulkResumed, BulkRetried, RetriedRun
    from penstock.client.views import BulkCancelled, SkippedRun

    M = TypeVar("M", bound=RunSelection)
    P = TypeVar("P", BulkCancelled, BulkPaused, BulkRerun, BulkResumed, BulkRetried)

T = TypeVar("T")

REPEATED_S_MAX = 10.0  # a service that was restarted answers again by then
PAUSE_S = 0.5

RUN_IDS = click.argument("run_ids", metavar="[ID]...", nargs=-1, type=RunId())
VERSION = click.option("--version", metavar="V", help="Of this version of the workflow.  [default: the latest]")
AFTER = click.option(
    "--after",
    metavar="TIME",
    type=Past(),
    help="Only runs created at this time or later: 2026-01-31T12:00:00Z, or 1h ago.",
)
BEFORE = click.option(
    "--before",
    metavar="TIME",
    type=Past(),
    help="Only runs created at this time or earlier: 2026-01-31T12:00:00Z, or 1h ago.",
)
PAUSED = click.option(
    "--paused/--no-paused", default=None, help="Only runs that are paused, or only those that are not."
)
SEARCH = click.option("--q", metavar="TEXT", help="Only runs whose id begins so, or with a label that has it.")
TRIGGER = click.option("--trigger", metavar="NAME", help="Only runs that this trigger has started.")
PARENT = click.option("--parent", metavar="ID", type=RunId(), help="Only runs that a step of this run has started.")
FILTERS = ("labels", "trigger", "parent", "q")  # each will do in place of a workflow
OPTIONS = {"labels": "label"}  # whose parameters have another name
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


@click.command(cls=JsonCommand)
@RUN_IDS
@click.option("--reason", help="Kept in the history of the runs ID...")
@click.option("--workflow", metavar="W", help="Instead of ID...: all runs of this workflow that have not ended.")
@click.option(
    "--status",
    type=click.Choice(("running", "pending", "all")),
    help="With --workflow. pending: also scheduled.  [default: all]",
)
@click.option("--compensate", is_flag=True, help="Undo the steps that have completed first: `compensate` of each.")
@HAVING
@TRIGGER
@PARENT
@SEARCH
@PAUSED
@AFTER
@BEFORE
@DRY_RUN
@click.pass_obj
def cancel(
    session: Session,
    /,
    run_ids: tuple[str, ...],
    reason: str | None,
    workflow: str | None,
    compensate: bool,
    **matching: Any,
) -> None:
    """Cancel the runs ID..., or those of a workflow. A run that cannot be cancelled does not keep the others from
    it."""
    either(run_ids, workflow, **matching)
    client = session.client()
    if run_ids:
        no_options("--workflow", **matching)
        each(
            run_ids,
            lambda run_id: client.cancel(run_id, reason, compensate=compensate),
            lambda done: f"{done.run_id} {done.status}",
        )
    else:
        no_options("ID...", reason=reason)
        _cancel_all(client, workflow, {**matching, "compensate": compensate})


@click.command(cls=JsonCommand)
@RUN_IDS
@click.option("--workflow", metavar="W", help="Instead of ID...: all failed runs of this workflow.")
@click.option(
    "--mode",
    type=click.Choice(("replay", "rerun")),
    help="replay: the runs go on at what failed. rerun: new runs with the same inputs.  [default of ID...: replay]",
)
@click.option("--again", is_flag=True, help="With rerun: also runs that were rerun already.")
@HAVING
@TRIGGER
@PARENT
@SEARCH
@AFTER
@BEFORE
@DRY_RUN
@click.pass_obj
def retry(
    session: Session, /, run_ids: tuple[str, ...], workflow: str | None, mode: str | None, again: bool, **matching: Any
) -> None:
    """Have the failed runs ID..., or those of a workflow, go on at what failed, or start them anew (once, however often
    it is called)."""
    either(run_ids, workflow, **matching)
    if again and mode != "rerun":
        raise click.UsageError("--again can be given with --mode rerun only")
    client, once = session.client(), mode == "rerun" and not again
    if run_ids:
        no_options("--workflow", **matching)
        each(
            run_ids,
            lambda run_id: client.retry(run_id, mode or "replay", once=once),
            lambda done: _retried(done, "resumed"),
        )
    elif mode is None:
        raise click.UsageError("--workflow needs --mode: replay or rerun")
    else:
        _retry_all(client, workflow, mode, {**matching, "once": once})


@click.command(cls=JsonCommand)
@click.argument("workflow")
@click.argument("file", type=click.File("rb"))
@VERSION
@click.option(
    "--idempotency-key", metavar="KEY", help="The same key and FILE give the same runs, however often they are sent."
)
@LABEL
@click.pass_obj
def bulk(
    session: Session,
    workflow: str,
    file: BinaryIO,
    version: str | None,
    idempotency_key: str | None,
    labels: dict[str, str],
) -> None:
    """Start one run of WORKFLOW per input in FILE (a JSON array, or JSON lines; - for stdin) and print the run ids.

    Each request starts up to 1000 runs, all of them or none. One without an answer is sent again for 10 s, and starts
    nothing twice. After an error, the ids printed are of those that started.
    """
    client, inputs = session.client(), documents.bulk_inputs(file.read())
    key, run_ids = idempotency_key or uuid4().hex, list[str]()
    try:
        with output.progress("starting", len(inputs)) as advance:
            for number, part in enumerate(documents.requests(inputs)):
                start = partial(client.bulk, workflow, part, version=version, labels=labels)
                run_ids += _repeated(partial(start, idempotency_key=f"{key}.{number}")).run_ids
                advance(len(part), len(inputs))
    except Unavailable as error:
        raise Unavailable(f"{error}\nto start the rest, and nothing twice: --idempotency-key {key}") from error
    finally:
        output.show({"run_ids": run_ids, "total": len(run_ids)}, lambda: _lines(run_ids))


def _repeated(send: Callable[[], T]) -> T:
    """The result of a request that may be repeated; it is, for a while, when it is unknown what became of it."""
    until = time.monotonic() + REPEATED_S_MAX
    while True:
        try:
            return send()
        except Unavailable:
            if time.monotonic() >= until:
                raise
        time.sleep(PAUSE_S)


def no_options(other: str, **given: object) -> None:
    """Raises UsageError for options that belong to the other way of use."""
    wrong = [
        f"--{OPTIONS.get(name, name).replace('_', '-')}"
        for name, value in given.items()
        if value or (name == "paused" and value is not None)
    ]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)} can be given with {other} only")


def either(run_ids: tuple[str, ...], workflow: str | None, **matching: Any) -> None:
    """Raises UsageError for ids and a workflow, and without both and any filter in place of it."""
    if bool(run_ids) == (workflow is not None or (not run_ids and any(matching.get(name) for name in FILTERS))):
        raise click.UsageError("give either ID... or --workflow")


def each(run_ids: tuple[str, ...], ask: Callable[[str], T], line: Callable[[T], str]) -> None:
    """Ask for one run after the other. A refusal is printed on stderr, and makes the exit code 1."""
    done = [answer for run_id in run_ids if (answer := _one(run_id, ask)) is not None]
    output.show(done, lambda: _lines(map(line, done)))
    if len(done) < len(run_ids):
        click.get_current_context().exit(REFUSED)


def _one(run_id: str, ask: Callable[[str], T]) -> T | None:
    try:
        return ask(run_id)
    except Unavailable:
        raise
    except PenstockError as error:
        text = str(error) if run_id in str(error) else f"{run_id}: {error}"
        click.echo(f"Error: {output.printable(text)}", err=True)
        return None


def _cancel_all(client: Client, workflow: str | None, matching: dict[str, Any]) -> None:
    from penstock.client import ToCancel
    from penstock.client.views import BulkCancelled

    parts: list[BulkCancelled] = []
    try:
        in_parts("cancelling", client.cancel_all, ToCancel(workflow_id=workflow, **matching), parts)
    finally:  # after an error, what was done before it
        done = BulkCancelled(*joined(parts, lambda part: part.cancelled), matching["dry_run"])
        output.show(done, lambda: _show_cancelled(done))


def _retry_all(client: Client, workflow: str | None, mode: str, matching: dict[str, Any]) -> None:
    from penstock.client import ToRetry
    from penstock.client.recovery.views import BulkRetried

    parts: list[BulkRetried] = []
    try:
        in_parts("retrying", client.retry_all, ToRetry(workflow_id=workflow, mode=mode, **matching), parts)
    finally:  # as in _cancel_all
        done = BulkRetried(*joined(parts, lambda part: part.retried), matching["dry_run"])
        output.show(done, lambda: _show_retried(done))


def in_parts(title: str, ask: Callable[[M], P], matching: M, parts: list[P]) -> None:
    """Ask for all that matches, 1,000 runs at a time, and add the answers to `parts` as they come."""
    from msgspec.structs import replace

    cursor = None
    matching = replace(matching, labels=matching.labels or None)
    with output.progress(title) as advance:
        while cursor is not UNSET:
            answer = ask(replace(matching, limit=MATCHING_RUNS_MAX, cursor=cursor))
            parts.append(answer)
            done = sum(part.total for part in parts)
            advance(answer.total, done + (0 if isinstance(answer.remaining, UnsetType) else answer.remaining))
            cursor = answer.next


def joined(parts: Sequence[P], done: Callable[[P], list[T]]) -> tuple[list[T], list[SkippedRun], int]:
    """What was done in all parts, what was skipped, and how many matched."""
    skipped = [one for part in parts for one in part.skipped]
    return [one for part in parts for one in done(part)], skipped, sum(part.total for part in parts)


def _show_cancelled(done: BulkCancelled) -> None:
    outcome = "would be cancelled" if done.dry_run else "cancelled"
    _lines(f"{run_id} {outcome}" for run_id in done.cancelled)
    show_skipped(done.skipped)


def _show_retried(done: BulkRetried) -> None:
    outcome = "would be retried" if done.dry_run else "resumed"
    _lines(_retried(one, outcome) for one in done.retried)
    show_skipped(done.skipped)


def _retried(one: RetriedRun, outcome: str) -> str:
    return f"{one.original_run_id} {f'again as {one.new_run_id}' if one.new_run_id else outcome}"


def show_skipped(skipped: Iterable[SkippedRun]) -> None:
    _lines(output.printable(f"{one.run_id} skipped: {one.reason}") for one in skipped)


def _lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
