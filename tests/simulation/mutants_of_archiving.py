"""Bugs in archiving, put in on purpose, as in mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.actors.maintenance import archivable, archiving
from penstock.actors.runs import run_actor
from penstock.broker import names
from penstock.broker.records.run_data import RunData
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.config.process.background import all_of

Patch: TypeAlias = tuple[Any, str, Any]
EVER = 2**62


def _archives_whatever_has_happened_since() -> Patch:
    """Of a replay and an archiving at the same time, both succeed."""

    async def blind(history: History, run_id: str, body: bytes, last_seq: int = 0) -> int:
        return await history._publish(run_id, body, {})

    return History, "mark", blind


def _puts_away_what_came_after_the_mark() -> Patch:
    put_away = RunData.put_away

    async def thorough(data: RunData, run_id: str, upto: int, events: Sequence[int] = ()) -> None:
        await put_away(data, run_id, EVER)

    return RunData, "put_away", thorough


def _leaves_the_histories_of_archived_runs() -> Patch:
    async def left(store: Store, run_id: str, events: Sequence[Any]) -> None:
        """Nothing is removed."""

    return run_actor, "put_away", left


def _removes_a_history_from_its_beginning_on() -> Patch:
    """Who reads meanwhile has the first events, and does not look for what is gone behind them."""

    async def forward(data: RunData, mark: int, events: Sequence[int]) -> None:
        for seq in (*events, mark):
            await data._publisher.erase(names.HISTORY, seq)

    return RunData, "_erase", forward


def _removes_the_mark_with_the_events() -> Patch:
    """Who dies meanwhile leaves events that nothing leads to the archive from."""

    async def at_once(data: RunData, mark: int, events: Sequence[int]) -> None:
        await all_of(data._publisher.erase(names.HISTORY, seq) for seq in (*events, mark))

    return RunData, "_erase", at_once


def _keeps_slots_that_archived_runs_are_granted() -> Patch:
    async def kept(store: Store, events: Sequence[Any]) -> None:
        """Nothing is given back."""

    return run_actor, "take_late", kept


def _takes_a_start_for_the_first_event_of_a_scheduled_run() -> Patch:
    return archivable, "begins_with", lambda first, created_at: True


def _marks_runs_that_are_not_stored() -> Patch:
    async def hasty(store: Store, runs: Sequence[Any], places: Any) -> dict[str, int]:
        tip = await store.archive.tip()
        return {run.run_id: tip + 1 for run in runs}

    return archiving, "_stored", hasty


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _archives_whatever_has_happened_since,
        _puts_away_what_came_after_the_mark,
        _leaves_the_histories_of_archived_runs,
        _removes_a_history_from_its_beginning_on,
        _removes_the_mark_with_the_events,
        _keeps_slots_that_archived_runs_are_granted,
        _takes_a_start_for_the_first_event_of_a_scheduled_run,
        _marks_runs_that_are_not_stored,
    )
}
