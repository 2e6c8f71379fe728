"""Bugs in what the kinds of steps do, put in on purpose, as in mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from msgspec.structs import replace

from penstock.actors.control import watch
from penstock.actors.runs import run_actor
from penstock.actors.runs.commands.children import Children
from penstock.actors.runs.commands.item_cache import ItemCache
from penstock.actors.runs.effects import Effects
from penstock.actors.runs.waits import event_waits, wait_index
from penstock.actors.runs.waits.checkpoints import seen_by
from penstock.actors.runs.waits.event_waits import EventWaits
from penstock.actors.runs.waits.matching import EventMatching
from penstock.actors.runs.waits.wait_index import OpenWait
from penstock.broker.records.event_waits import SeenBy, WaitCheckpoint
from penstock.engine import fragments
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.event_payloads import NULL
from penstock.engine.run.events import ChildEnded, StepCompleted
from penstock.engine.run.execution import beginning, failure_runs, steps
from penstock.engine.run.execution import children as child_ids
from penstock.engine.run.execution.children import child_started
from penstock.engine.run.execution.dispatch import task_with
from penstock.engine.run.execution.steps import fail_for_good, failed, is_current, recovered
from penstock.engine.run.items import Items, ItemStatus
from penstock.engine.run.kinds import handler, normal, respond, sub_workflow, wait_for_event
from penstock.engine.run.kinds import map as maps
from penstock.engine.run.kinds.normal import Normal
from penstock.engine.run.kinds.planner import Planner
from penstock.engine.run.kinds.sub_workflow import ChildStep
from penstock.engine.run.state import STEP_DONE, Run, StepStatus
from penstock.engine.run.timers import live_timers
from tests.simulation.clock import TIME

Patch: TypeAlias = tuple[Any, str, Any]


def _begins_what_is_to_be_skipped() -> Patch:
    return beginning, "applies", lambda *given: True


def _gives_a_retry_the_default_input() -> Patch:
    begin = Normal.begin

    def forgetful(kind: Normal, workflow: Any, run: Run, plan: Any, at: float, values: Any) -> Sequence[Any]:
        step = run.step(plan.id)
        return [task_with(run, plan, step)] if step.attempts > 1 else begin(kind, workflow, run, plan, at, values)

    return Normal, "begin", forgetful


def _forgets_sleeps_at_a_takeover() -> Patch:
    def awake(run: Run) -> list[SetTimer]:
        return [timer for timer in live_timers(run) if not timer.timer.startswith("sleep.")]

    return run_actor, "live_timers", awake


def _sleeps_from_when_it_looks() -> Patch:
    begin = Effects._begin

    async def late(effects: Effects, workflow: Any, run: Run, command: Any, *rest: Any) -> Any:
        return await begin(effects, workflow, run, replace(command, at=TIME.time()), *rest)

    return Effects, "_begin", late


def _counts_an_element_twice() -> Patch:
    """One that says a second time that it is done counts for one that is not."""
    take = Normal.take_event

    def generous(kind: Any, workflow: Any, run: Run, record: Any, event: Any, plan: Any) -> Any:
        step = run.step(plan.id)
        if not (isinstance(event, StepCompleted) and step.status is StepStatus.COMPLETED):
            return take(kind, workflow, run, record, event, plan)
        whole = maps.map_of(workflow, plan)
        items = run.steps[whole.id].items
        if items is None or run.steps[whole.id].status is not StepStatus.RUNNING:
            return run, []
        counts = list(items.counts)
        counts[ItemStatus.COMPLETED] += 1
        items = replace(items, counts=tuple(counts), outputs=dict.fromkeys(range(items.total), NULL))
        return maps._go_on(workflow, maps._with_items(run, record, whole.id, items), record, whole)

    return maps.MapItem, "take_event", generous


def _ends_a_map_with_an_element_open() -> Patch:
    complete = maps._go_on

    def hasty(workflow: Any, run: Run, record: Any, whole: Any) -> Any:
        items = maps._items(run, whole.id)
        if items.total < 2 or run.failing or items.count(ItemStatus.COMPLETED) != items.total - 1:
            return complete(workflow, run, record, whole)
        outputs = dict.fromkeys(range(items.total), NULL) | (items.outputs or {})
        return maps._complete(workflow, run, record, whole, replace(items, outputs=outputs))

    return maps, "_go_on", hasty


def _does_not_count_elements_that_run() -> Patch:
    return Items, "out", property(lambda items: items.counts[ItemStatus.QUEUED])


def _gives_elements_of_one_map_to_another() -> Patch:
    def any_of_the_run(cache: ItemCache, key: Any) -> Any:
        return next((items for found, (items, _) in cache._found.items() if found[0] == key[0]), None)

    return ItemCache, "get", any_of_the_run


def _leaves_elements_in_the_queue() -> Patch:
    return maps.Map, "withdraw", lambda kind, workflow, plan, step: ()


def _gives_each_attempt_the_same_child() -> Patch:
    return child_ids, "sha256", lambda told: sha256(told.rpartition(b"\n")[0])


def _takes_the_end_of_any_run_for_that_of_the_child() -> Patch:
    take = ChildStep.take_event

    def trusting(kind: Any, workflow: Any, run: Run, record: Any, event: Any, plan: Any) -> Any:
        if isinstance(event, ChildEnded) and is_current(run.step(plan.id), event):
            return sub_workflow._ended(workflow, run, record, plan, event.payload)
        return take(kind, workflow, run, record, event, plan)

    return ChildStep, "take_event", trusting


def _does_not_cancel_children() -> Patch:
    return sub_workflow, "cancelled_child", lambda step_id, step, reason: []


def _does_not_cancel_the_children_of_a_map() -> Patch:
    return maps, "_children", lambda plan, step, items: iter(())


def _says_that_a_child_has_started_before_it_has() -> Patch:
    async def hasty(children: Children, run: Run, command: Any) -> Any:
        return child_started(run, command)

    return Children, "_begun", hasty


def _starts_another_run_each_time_that_it_looks_at_a_failure() -> Patch:
    return failure_runs, "failure_run_id", lambda run_id, resumes: TIME.uuid4().hex


def _handles_a_failure_before_the_last_attempt() -> Patch:
    def hasty(workflow: Any, run: Run, record: Any, event: Any, plan: Any) -> Any:
        if plan.on_failure is None:
            return failed(workflow, run, record, event, plan)
        return fail_for_good(workflow, run, record, plan, event.payload.error)

    return normal, "failed", hasty


def _forgets_what_a_handler_returns() -> Patch:
    def forgetful(workflow: Any, run: Run, record: Any, plan: Any, output: Any) -> Any:
        return recovered(workflow, run, record, plan, NULL)

    return handler, "recovered", forgetful


def _does_not_look_back() -> Patch:
    plan = wait_for_event._plan
    return wait_for_event, "_plan", lambda found: replace(plan(found), lookback_s=0.0)


def _sees_only_the_events_that_come_after_it_looks() -> Patch:
    return EventWaits, "_look_back", lambda waits, waiting: None


def _takes_any_event_of_the_name() -> Patch:
    return wait_index, "_place", lambda record: (record.wait.event, "", b"")


def _takes_events_that_do_not_match() -> Patch:
    async def all_of_them(matching: EventMatching, record: Any, body: bytes) -> bool:
        return True

    return EventMatching, "holds", all_of_them


def _takes_an_event_that_an_ancestor_has_taken() -> Patch:
    return wait_for_event, "_received_before", lambda workflow, run, plan: iter(())


def _forgets_waits_at_a_takeover() -> Patch:
    return EventWaits, "own", lambda waits, partition: None


def _ends_a_wait_before_it_has_read_everything() -> Patch:
    async def at_once(waits: EventWaits, seq: int) -> None:
        pass

    return EventWaits, "_read_up_to", at_once


def _says_of_busy_waits_that_they_have_seen_everything() -> Patch:
    def hasty(waits: Iterable[OpenWait], position: int, created: str) -> WaitCheckpoint:
        return WaitCheckpoint(created, (SeenBy(position, b"".join(waiting.mark for waiting in waits)),))

    return event_waits, "checkpoint_of", hasty


def _takes_new_waits_for_such_that_have_seen_everything() -> Patch:
    class OfAll(dict[bytes, int]):
        def get(self, mark: bytes, other: int = 0) -> int:  # type: ignore[override]
            return max(self.values())

    return event_waits, "seen_by", lambda checkpoint, tip: OfAll(seen_by(checkpoint, tip))


def _ends_a_plan_with_the_first_of_its_last_steps() -> Patch:
    def hasty(workflow: Any, run: Run, planner_id: str) -> bool:
        lasts = workflow.lasts[planner_id].values()
        return run.steps[planner_id].status is StepStatus.RUNNING and any(
            run.steps[one].status in STEP_DONE for one in lasts
        )

    return steps, "has_ended", hasty


def _takes_plans_as_they_come() -> Patch:
    return fragments, "_check", lambda workflow, planner, planned, report: None


def _does_not_say_why_a_plan_was_refused() -> Patch:
    return Planner, "reports_error", False


def _responds_with_the_usual_status() -> Patch:
    return respond, "_status", lambda values: 200


def _answers_with_what_the_run_returns() -> Patch:
    """A caller waits for the end of the run, whatever its steps respond."""
    return watch, "reply_in", lambda event, before, after: None


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _begins_what_is_to_be_skipped,
        _gives_a_retry_the_default_input,
        _forgets_sleeps_at_a_takeover,
        _sleeps_from_when_it_looks,
        _counts_an_element_twice,
        _ends_a_map_with_an_element_open,
        _does_not_count_elements_that_run,
        _gives_elements_of_one_map_to_another,
        _leaves_elements_in_the_queue,
        _gives_each_attempt_the_same_child,
        _takes_the_end_of_any_run_for_that_of_the_child,
        _does_not_cancel_children,
        _does_not_cancel_the_children_of_a_map,
        _says_that_a_child_has_started_before_it_has,
        _starts_another_run_each_time_that_it_looks_at_a_failure,
        _handles_a_failure_before_the_last_attempt,
        _forgets_what_a_handler_returns,
        _does_not_look_back,
        _sees_only_the_events_that_come_after_it_looks,
        _takes_any_event_of_the_name,
        _takes_events_that_do_not_match,
        _takes_an_event_that_an_ancestor_has_taken,
        _forgets_waits_at_a_takeover,
        _ends_a_wait_before_it_has_read_everything,
        _says_of_busy_waits_that_they_have_seen_everything,
        _takes_new_waits_for_such_that_have_seen_everything,
        _ends_a_plan_with_the_first_of_its_last_steps,
        _takes_plans_as_they_come,
        _does_not_say_why_a_plan_was_refused,
        _responds_with_the_usual_status,
        _answers_with_what_the_run_returns,
    )
}
