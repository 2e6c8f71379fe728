"""Operations on one step of a run: its next attempt now, and its completion by hand. Each appends to the run's history
and changes nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Raw, Struct

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import now
from penstock.actors.runs.loading import LoadedRun, load
from penstock.broker.store import Store
from penstock.config.process.crash_points import reached
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.run.advance import advance
from penstock.engine.run.control.overriding import refusal, too_early
from penstock.engine.run.event_payloads import Override, TimerRef
from penstock.engine.run.events import Event, Record, StepOverridden, TimerFired
from penstock.engine.run.slots.starting import begun_soon
from penstock.engine.run.state import STEP_DONE, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, step_timers
from penstock.engine.run.workflow import Workflow

T = TypeVar("T")

TRIES_MAX = 20  # each one overtaken by an event of another step
FORMAT = 2  # of `step.overridden`: versions that read format 1 only would take it for malformed


class StepRetry(Struct, frozen=True):
    """`resumed`: the failed run goes on at the step; else the step's next attempt, number `attempt`, begins now."""

    resumed: bool
    attempt: int = 0


async def retry_step(store: Store, run_id: str, step_id: str) -> StepRetry:
    """Have a failed run go on at this step, or end the wait for the step's next attempt.

    Raises NotFound, Conflict for a step that has neither failed nor waits, Unavailable (outcome unknown).
    """

    async def once(loaded: LoadedRun) -> StepRetry | None:
        run = run_operations.found(loaded, run_id)
        step = _step(run, step_id)
        if run.status is RunStatus.FAILED:
            return await _resumed(store, loaded, run, step_id, step)
        return await _now(store, loaded, run, step_id, step)

    return await _tried(store, run_id, once)


async def skip_step(store: Store, run_id: str, step_id: str, output: Raw, by: str | None = None) -> StepStatus:
    """Complete a step by hand with this output; a failed run goes on. Returns its status: completed, or recovered if it
    is the handler that was completed.

    Raises NotFound, Conflict for a step that has completed or cannot yet be, Unavailable (outcome unknown).
    """
    event = StepOverridden(run_id=run_id, step_id=step_id, timestamp=now(), payload=Override(output, by), v=FORMAT)

    async def once(loaded: LoadedRun) -> StepStatus | None:
        run = run_operations.found(loaded, run_id)
        _check_there(run, step_id)
        if run.status is RunStatus.FAILED:
            return await _overridden_after_failure(store, loaded, run, event)
        if problem := refusal(_workflow(loaded), run, step_id):
            raise Conflict(problem)
        return await _overridden(store, loaded, run, event)

    return await _tried(store, run_id, once)


async def _tried(store: Store, run_id: str, once: Callable[[LoadedRun], Awaitable[T | None]]) -> T:
    """The result of the first try that no other event has overtaken."""
    for _ in range(TRIES_MAX):
        done = await once(await load(store, run_id))
        if done is not None:
            return done
    raise Unavailable(f"run {run_id} changes too often for this now: repeat it")


async def _resumed(store: Store, loaded: LoadedRun, run: Run, step_id: str, step: StepState) -> StepRetry:
    event = await run_operations.resumption(store, run.run_id, loaded)
    if step.status not in (StepStatus.FAILED, StepStatus.CANCELLED):
        raise Conflict(f"step {quoted(step_id)} has not failed: it is {step.status}")
    if step.status is StepStatus.CANCELLED:
        _check_ready(loaded, run, step_id)
    await run_operations.resume(store, loaded, event)
    return StepRetry(resumed=True)


async def _now(store: Store, loaded: LoadedRun, run: Run, step_id: str, step: StepState) -> StepRetry | None:
    waits = step.status is StepStatus.QUEUED and step.due is not None and not run.failing
    if not waits or run.ended:
        ended = f", and run {run.run_id} is {run.status}" if run.ended else ""
        raise Conflict(f"step {quoted(step_id)} does not wait for its next attempt: it is {step.status}{ended}")
    timer = next(one for one in step_timers(run, step_id, step) if one.timer.startswith(f"{TimerKind.RETRY}."))
    fired = TimerRef(timer.timer, step_id, timer.attempt, early=True)
    event = TimerFired(run_id=run.run_id, timestamp=now(), payload=fired)
    if not await store.history.append_next(event, loaded.last_seq):
        return None
    reached("step.retried")
    return StepRetry(resumed=False, attempt=step.attempts)


async def _overridden(store: Store, loaded: LoadedRun, run: Run, event: StepOverridden) -> StepStatus | None:
    after = _after(loaded, run, event)
    if not await store.history.append_next(event, loaded.last_seq):
        return None
    reached("step.overridden")
    return after


async def _overridden_after_failure(
    store: Store, loaded: LoadedRun, run: Run, event: StepOverridden
) -> StepStatus | None:
    _check_not_done(run, event.step_id)
    resumed = await run_operations.resumption(store, run.run_id, loaded, holds=event.step_id)
    _check_ready(loaded, run, event.step_id)
    after = _after(loaded, run, resumed, event)
    await run_operations.resume(store, loaded, resumed, event)
    return after


def _after(loaded: LoadedRun, run: Run, *events: Event) -> StepStatus:
    """The status of the step after these events, the last of which completes it. Raises Conflict if it does not."""
    workflow, seq = _workflow(loaded), max(loaded.last_seq, run.seq)
    found: Run | None = run
    for number, event in enumerate(events, 1):
        if found is not None and found is not run:
            found = begun_soon(workflow, found, Record(found.seq, 0.0, event))
        if (
            isinstance(event, StepOverridden)
            and found is not None
            and (problem := refusal(workflow, found, event.step_id))
        ):
            raise Conflict(problem)
        found, _ = advance(workflow, found, Record(seq + number, 0.0, event))
    assert found is not None
    assert isinstance(event, StepOverridden)
    plan = workflow.plan_of(event.step_id)
    assert plan is not None, "it is not refused"
    return found.steps[plan.handles or plan.id].status


def _workflow(loaded: LoadedRun) -> Workflow:
    if loaded.workflow is None:
        raise Conflict("the run cannot go on, its definition is not in the store")
    return loaded.workflow


def _check_ready(loaded: LoadedRun, run: Run, step_id: str) -> None:
    plan = _workflow(loaded).plan_of(step_id)
    if plan is not None and plan.item is None and (problem := too_early(run, plan)):
        raise Conflict(problem)


def _check_not_done(run: Run, step_id: str) -> None:
    step = run.find(step_id)
    if step is not None and step.status in STEP_DONE:
        raise Conflict(f"step {quoted(step_id)} has completed already: it is {step.status}")


def _check_there(run: Run, step_id: str) -> None:
    _step(run, step_id)


def _step(run: Run, step_id: str) -> StepState:
    """Raises NotFound for what is no step of the run."""
    found = run.find(step_id)
    if found is None:
        raise NotFound(f"run {run.run_id} has no step {quoted(step_id)}")
    return found
