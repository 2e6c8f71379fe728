"""Bugs in what an operator asks of runs, put in on purpose, as in mutants.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control import rerunning as control
from penstock.actors.control import step_operations
from penstock.actors.imports import importing
from penstock.actors.runs.commands.children import Children
from penstock.actors.runs.commands.paused_tasks import PausedTasks
from penstock.actors.runs.commands.takeovers import Takeovers
from penstock.actors.runs.waits.checkpoints import WaitCheckpoints
from penstock.broker import message_ids, record_keys
from penstock.broker.records.event_waits import WaitCheckpoint
from penstock.broker.records.imports import ImportDocument, Imports, encode_mark
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.engine.errors import Conflict
from penstock.engine.run import advance
from penstock.engine.run.commands import CancelChild, Command, WithdrawQueued, WithdrawTask
from penstock.engine.run.control import overriding, pausing, rerunning, taking_over
from penstock.engine.run.event_payloads import Taking, TimerRef
from penstock.engine.run.events import Event, Record, StepOverridden, StepTakenOver, TimerFired, WorkflowPaused
from penstock.engine.run.holds import RunPause
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Advance, Workflow

Patch: TypeAlias = tuple[Any, str, Any]


def _lets_timers_go_off_while_a_run_is_paused() -> Patch:
    kept = pausing._kept

    def hasty(run: Run, paused: RunPause, record: Record) -> RunPause | None:
        return None if isinstance(record.event, TimerFired) else kept(run, paused, record)

    return pausing, "_kept", hasty


def _forgets_what_was_to_take_effect_after_a_pause() -> Patch:
    return pausing, "_fired", lambda run, paused, record, *kinds: ()


def _begins_what_is_next_while_a_run_is_paused() -> Patch:
    return pausing, "BEGINS", ()


def _leaves_tasks_in_the_queue_when_a_run_is_paused() -> Patch:
    async def left(tasks: PausedTasks, run: Run, command: WithdrawQueued) -> None:
        """Nothing is withdrawn."""

    return PausedTasks, "withdraw", left


def _does_not_put_tasks_back() -> Patch:
    async def there(tasks: PausedTasks, run: Run, command: Any) -> bool:
        return True

    return PausedTasks, "is_queued", there


def _puts_tasks_back_under_their_first_id() -> Patch:
    """The broker takes them for the same messages, if the pause was short."""

    def first(run_id: str, step_id: str, iteration: int, attempt: int, again: int = 0) -> str:
        return f"{run_id}.{step_id}.{iteration}.{attempt}"

    return message_ids, "of_task", first


def _has_pauses_of_a_run_run_down_its_timeout() -> Patch:
    """It goes on with what was left when it began."""
    pause = pausing.pause

    def costly(workflow: Workflow, run: Run, record: Record, event: WorkflowPaused) -> Advance:
        after, commands = pause(workflow, run, record, event)
        assert after.pause is not None
        left = None if after.pause.left is None else after.pause.left / 4
        return replace(after, pause=replace(after.pause, left=left)), commands

    return advance, "pause", costly


def _does_not_pause_children() -> Patch:
    def nobody(children: Children, run: Run, command: Any) -> asyncio.Future[bytes]:
        sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        sent.set_result(b"{}")
        return sent

    return Children, "pause", nobody


def _completes_by_hand_whatever_has_happened_since() -> Patch:
    """Of two who complete a step, both are told that it has their output."""

    append_next = History.append_next

    async def blind(history: History, event: Event, last_seq: int) -> bool:
        if not isinstance(event, StepOverridden):
            return await append_next(history, event, last_seq)
        await history.append(event, message_id=uuid4().hex)
        return True

    return History, "append_next", blind


def _goes_on_with_a_step_beside_the_one_that_completes_it() -> Patch:
    """The failed run is resumed, and then its step is completed by hand, whatever comes between."""

    async def one_by_one(history: History, events: Sequence[Event], last_seq: int) -> bool:
        for event in events:
            await history.append(event, message_id=uuid4().hex)
        return True

    return History, "append_together", one_by_one


def _leaves_the_task_of_a_step_that_was_completed_by_hand() -> Patch:
    return overriding, "_withdrawn", _without(overriding._withdrawn, WithdrawTask)


def _leaves_the_child_of_a_step_that_was_completed_by_hand() -> Patch:
    return overriding, "_withdrawn", _without(overriding._withdrawn, CancelChild)


def _does_not_say_that_an_attempt_begins_early() -> Patch:
    return step_operations, "TimerRef", lambda timer, step_id, attempt, early: TimerRef(timer, step_id, attempt)


def _takes_over_what_depends_on_the_step() -> Patch:
    return rerunning, "_below", lambda workflow, from_step: {from_step}


def _takes_over_without_outputs() -> Patch:
    send = Takeovers._put

    async def empty(takeovers: Takeovers, event: StepTakenOver) -> Any:
        return await send(takeovers, replace(event, payload=replace(event.payload, output=Raw(b"null"))))

    return Takeovers, "_put", empty


def _begins_when_one_step_is_taken_over() -> Patch:
    take_over = taking_over.take_over

    def hasty(workflow: Workflow, run: Run, record: Record, event: StepTakenOver) -> Advance:
        return take_over(workflow, replace(run, taking=Taking((event.step_id,))), record, event)

    return advance, "take_over", hasty


def _takes_over_nothing() -> Patch:
    return control, "taken", lambda workflow, run, from_step, given: Taking()


def _starts_another_rerun_with_the_same_key() -> Patch:
    return control, "_keyed", lambda run, key: new_run_id()


def _fails_to_write_down_what_waits_have_seen() -> Patch:
    """Nobody misses it as long as the process lives; it is logged."""

    async def fails(written: WaitCheckpoints, partition: int, checkpoint: WaitCheckpoint) -> None:
        raise KeyError(partition)

    return WaitCheckpoints, "_write", fails


def _imports_over_what_is_there() -> Patch:
    """Two who import the same run at the same time both succeed."""

    async def mark(history: History, run_id: str, body: bytes) -> int:
        return await history._publish(run_id, body, {})

    return History, "mark", mark


def _marks_imports_before_they_are_stored() -> Patch:
    async def hasty(store: Store, document: ImportDocument, run: Run) -> int:
        import_id = uuid4().hex
        try:
            seq = await store.history.mark(run.run_id, encode_mark(importing._mark(run, import_id)))
        except Conflict as error:
            raise importing._taken(run) from error
        key = record_keys.import_key(run.run_id, import_id)
        await store.imports._bucket.put(key, msgspec.json.encode(document))
        return seq

    return importing, "store_run", hasty


def _removes_the_import_of_whoever_was_faster() -> Patch:
    remove = Imports.remove

    async def all_of_them(imports: Imports, run_id: str, import_id: str | None = None) -> None:
        await remove(imports, run_id)

    return Imports, "remove", all_of_them


def _leaves_imports_that_are_refused() -> Patch:
    async def left(imports: Imports, run_id: str, import_id: str | None = None) -> None:
        """Nothing is removed."""

    return Imports, "remove", left


def _without(withdrawn: Callable[..., list[Command]], kind: type[Any]) -> Callable[..., list[Command]]:
    return lambda *of: [command for command in withdrawn(*of) if not isinstance(command, kind)]


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _lets_timers_go_off_while_a_run_is_paused,
        _forgets_what_was_to_take_effect_after_a_pause,
        _begins_what_is_next_while_a_run_is_paused,
        _leaves_tasks_in_the_queue_when_a_run_is_paused,
        _does_not_put_tasks_back,
        _puts_tasks_back_under_their_first_id,
        _has_pauses_of_a_run_run_down_its_timeout,
        _does_not_pause_children,
        _completes_by_hand_whatever_has_happened_since,
        _goes_on_with_a_step_beside_the_one_that_completes_it,
        _leaves_the_task_of_a_step_that_was_completed_by_hand,
        _leaves_the_child_of_a_step_that_was_completed_by_hand,
        _does_not_say_that_an_attempt_begins_early,
        _takes_over_what_depends_on_the_step,
        _takes_over_without_outputs,
        _begins_when_one_step_is_taken_over,
        _takes_over_nothing,
        _starts_another_rerun_with_the_same_key,
        _fails_to_write_down_what_waits_have_seen,
        _imports_over_what_is_there,
        _marks_imports_before_they_are_stored,
        _removes_the_import_of_whoever_was_faster,
        _leaves_imports_that_are_refused,
    )
}
