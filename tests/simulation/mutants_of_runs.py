"""Bugs in labels, in the removal of runs, and in how they wait in memory, put in on purpose, as in mutants.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

from penstock.actors.control import rerunning, run_operations
from penstock.actors.maintenance import pruning
from penstock.actors.runs import loading, putting_away
from penstock.actors.runs.packed_actors import PackedActors
from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.shared.mailbox import PartitionQueue
from penstock.broker import far_events, names
from penstock.broker.nats.direct import Stored
from penstock.broker.records.run_data import RunData
from penstock.broker.streams.history import History
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import Event, WorkflowRemoved, WorkflowResumed
from penstock.engine.run.execution import failure_runs
from penstock.engine.run.kinds import sub_workflow
from penstock.engine.run.state import Run

Patch: TypeAlias = tuple[Any, str, Any]


def _removes_whatever_has_happened_since() -> Patch:
    """A run that was resumed meanwhile: its removal is answered, and does not count."""

    async def blind(history: History, event: WorkflowRemoved, last_seq: int) -> bool:
        await history.append(event, message_id=uuid4().hex)
        return True

    return History, "append_removal", blind


def _resumes_what_was_removed_meanwhile() -> Patch:
    append_next = History.append_next

    async def blind(history: History, event: Event, last_seq: int, *more: Any) -> bool:
        if not isinstance(event, WorkflowResumed):
            return await append_next(history, event, last_seq, *more)
        await history.append(event, message_id=uuid4().hex)
        return True

    return History, "append_next", blind


def _leaves_the_data_of_removed_runs() -> Patch:
    async def left(data: RunData, run_id: str, before: int) -> None:
        """Nothing is deleted."""

    return RunData, "remove", left


def _removes_the_first_events_of_a_run_first() -> Patch:
    """Who reads meanwhile, and does not see the removal yet, has an end without a beginning."""

    async def forwards(data: RunData, events: Sequence[int]) -> None:
        for seq in events:
            await data._publisher.erase(names.HISTORY, seq)

    return RunData, "_erase_backwards", forwards


def _takes_a_gap_before_a_removal_for_nothing() -> Patch:
    """A run whose last events are deleted already, as it is removed, has not ended for who loads it then."""
    return loading, "_removal_behind_gap", lambda page, before: 0


def _reads_one_event_too_few_before_one_that_is_far_away() -> Patch:
    read = far_events.events_before

    async def too_few(*given: Any) -> AsyncGenerator[Stored] | None:
        found = await read(*given)
        return None if found is None else all_but_one(found)

    async def all_but_one(events: AsyncGenerator[Stored]) -> AsyncGenerator[Stored]:
        found = [one async for one in events]
        for one in found[: max(1, len(found) - 1)]:
            yield one

    return far_events, "events_before", too_few


def _leaves_no_mark_where_a_snapshot_was() -> Patch:
    """What a former owner has sent before may be stored, and is trusted."""

    return putting_away, "REMOVAL_TTL", "0.5s"


def _removes_children_that_somebody_waits_for() -> Patch:
    return pruning, "_parents", lambda index, runs: {}


def _forgets_the_labels_of_what_is_rerun() -> Patch:
    return rerunning, "Started", lambda **fields: Started(**{**fields, "labels": None})


def _gives_all_runs_of_a_bulk_the_labels_of_the_first() -> Patch:
    begin_all = run_operations.begin_all

    async def alike(*given: Any) -> Any:
        labels: Sequence[Mapping[str, str] | None] = given[5]
        return await begin_all(*given[:5], [labels[0]] * len(labels))

    return run_operations, "begin_all", alike


def _gives_children_no_labels() -> Patch:
    return sub_workflow, "labels_given", lambda path, value: None


def _gives_runs_that_follow_a_failure_no_labels() -> Patch:
    return failure_runs, "labels_given", lambda path, value: None


def _keeps_what_it_has_packed_of_partitions_that_it_gives_up() -> Patch:
    def kept(packed: PackedActors, queue: PartitionQueue) -> None:
        """Nothing is removed."""

    return PackedActors, "remove_of", kept


def _goes_on_with_what_was_packed_before() -> Patch:
    add, states = PackedActors.add, dict[str, Run]()

    def late(packed: PackedActors, actor: RunActor) -> bool:
        if actor.run is not None:
            actor.run = states.setdefault(actor.run_id, actor.run)
        return add(packed, actor)

    return PackedActors, "add", late


def _takes_an_end_for_the_last_event() -> Patch:
    """Also where something has come behind it."""
    return RunActor, "_is_behind_end", lambda actor, run, events: False


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _removes_whatever_has_happened_since,
        _resumes_what_was_removed_meanwhile,
        _leaves_the_data_of_removed_runs,
        _removes_the_first_events_of_a_run_first,
        _takes_a_gap_before_a_removal_for_nothing,
        _reads_one_event_too_few_before_one_that_is_far_away,
        _leaves_no_mark_where_a_snapshot_was,
        _removes_children_that_somebody_waits_for,
        _forgets_the_labels_of_what_is_rerun,
        _gives_all_runs_of_a_bulk_the_labels_of_the_first,
        _gives_children_no_labels,
        _gives_runs_that_follow_a_failure_no_labels,
        _keeps_what_it_has_packed_of_partitions_that_it_gives_up,
        _goes_on_with_what_was_packed_before,
        _takes_an_end_for_the_last_event,
    )
}
