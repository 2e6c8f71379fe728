"""Bugs in how runs undo their steps, and in calls that are repeated with a key, put in on purpose, as in mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from msgspec.structs import replace

from penstock.actors.control import retry, run_operations
from penstock.actors.runs.commands.children import Children
from penstock.broker.run_ids import new_run_id
from penstock.engine.run.commands import CancelChild
from penstock.engine.run.events import Record
from penstock.engine.run.execution import compensation
from penstock.engine.run.execution.compensation import completed_late, undone
from penstock.engine.run.kinds import handler, normal
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Advance, Workflow

Patch: TypeAlias = tuple[Any, str, Any]

_undo_next, _completed = compensation._undo_next, compensation._completed


def _undoes_what_has_completed_first() -> Patch:
    def in_order(workflow: Workflow, run: Run) -> Iterator[tuple[int, int, str]]:
        yield from ((-seq, -rank, step_id) for seq, rank, step_id in _completed(workflow, run))

    return compensation, "_completed", in_order


def _undoes_elements_by_when_they_have_begun() -> Patch:
    """The order of the log is that of their ends."""

    def by_begin(workflow: Workflow, run: Run) -> Iterator[tuple[int, int, str]]:
        for seq, rank, step_id in _completed(workflow, run):
            place = run.element(step_id)
            items = None if place is None else run.steps[place[0]].items
            yield (seq if items is None or place is None else items.get(place[1]).begun), rank, step_id

    return compensation, "_completed", by_begin


def _undoes_steps_that_have_recovered() -> Patch:
    """Elements of a map have completed, and the map has recovered: what its handler did stands for all of them."""
    return compensation, "NEVER_UNDONE", frozenset[Any]()


def _undoes_before_what_runs_has_ended() -> Patch:
    def hasty(workflow: Workflow, run: Run, record: Record) -> Advance:
        state = compensation._state(run)
        if not (state.awaited and state.todo):
            return _undo_next(workflow, run, record)
        run, commands = _undo_next(workflow, replace(run, compensation=replace(state, awaited=0)), record)
        return replace(run, compensation=replace(compensation._state(run), awaited=state.awaited)), commands

    return compensation, "_undo_next", hasty


def _withdraws_what_runs() -> Patch:
    return Normal, "outlives", lambda kind, plan: False


def _forgets_to_undo_what_completes_late() -> Patch:
    def forgetful(workflow: Workflow, run: Run, record: Record, plan: Any, *rest: Any) -> Advance:
        return completed_late(workflow, run, record, replace(plan, compensate=None), *rest)

    return normal, "completed_late", forgetful


def _gives_up_when_one_step_cannot_be_undone() -> Patch:
    def resigned(workflow: Workflow, run: Run, record: Record, *, failed: bool = False) -> Advance:
        state = compensation._state(run)
        left = replace(run, compensation=replace(state, todo=() if failed else state.todo))
        return undone(workflow, left, record, failed=failed)

    return handler, "undone", resigned


def _says_of_every_compensation_that_it_has_completed() -> Patch:
    def hopeful(workflow: Workflow, run: Run, record: Record, *, failed: bool = False) -> Advance:
        return undone(workflow, run, record)

    return handler, "undone", hopeful


def _leaves_tasks_in_the_queue_when_it_undoes() -> Patch:
    return compensation, "_withdrawn", lambda workflow, plan, step: []


def _does_not_have_children_undo_their_steps() -> Patch:
    cancel = Children.cancel

    def plainly(children: Children, run: Run, command: CancelChild) -> Any:
        return cancel(children, run, replace(command, compensate=False))

    return Children, "cancel", plainly


def _starts_other_runs_when_a_bulk_start_is_repeated() -> Patch:
    return run_operations, "_one_of_keyed", lambda workflow, key, number: new_run_id()


def _starts_another_rerun_each_time() -> Patch:
    return retry._Call, "new_id", lambda call, run_id: new_run_id()


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _undoes_what_has_completed_first,
        _undoes_elements_by_when_they_have_begun,
        _undoes_steps_that_have_recovered,
        _undoes_before_what_runs_has_ended,
        _withdraws_what_runs,
        _forgets_to_undo_what_completes_late,
        _gives_up_when_one_step_cannot_be_undone,
        _says_of_every_compensation_that_it_has_completed,
        _leaves_tasks_in_the_queue_when_it_undoes,
        _does_not_have_children_undo_their_steps,
        _starts_other_runs_when_a_bulk_start_is_repeated,
        _starts_another_rerun_each_time,
    )
}
