"""Lost tasks: tasks of softly sticky runs that the bound worker had begun and does not hold any more.

Only that worker asks for the tasks bound to it. If it died after it had begun one, no delivery to another worker would
follow; and it seldom comes back under the same id. Each lost task is reported to its run as a fired timer: the engine
then gives it to any worker. Every engine checks for them; a task that two find at once is delivered to one of them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

from penstock.actors.maintenance.rounds import PAGE, Throttle, repeat_rounds, unthrottled
from penstock.actors.runs.loading import load_many, snapshots
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.worker_messages import decode
from penstock.config.logging import get_logger
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.events import TimerFired
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, StepState, StepStatus
from penstock.engine.run.timers import lost_timer
from penstock.engine.times import rfc3339

EVERY_S = 10.0

Execution: TypeAlias = tuple[str, str, int, int]
"""Run, step, attempt, iteration."""

log = get_logger()


async def watch_lost_tasks(store: Store) -> NoReturn:
    """Return lost tasks every EVERY_S, for ever."""

    async def check(throttle: Throttle) -> None:
        await return_lost_tasks(store, throttle)

    await repeat_rounds("lost_tasks", check, EVERY_S)


async def return_lost_tasks(store: Store, throttle: Throttle = unthrottled) -> int:
    """Give each lost task back to its run, for any worker. Returns how many. Raises Unavailable."""
    begun: dict[tuple[str, str], dict[Execution, str]] = defaultdict(dict)
    run_ids = sorted(await store.sticky_tasks.runs())
    for at in range(0, len(run_ids), PAGE):
        await throttle()
        for run in await load_many(store, await _may_have_begun(store, run_ids[at : at + PAGE])):
            for queue, execution, timer in await _begun(store, run):
                begun[queue][execution] = timer
    return sum([await _return(store, *queue, executions) for queue, executions in begun.items()])


async def _may_have_begun(store: Store, run_ids: Sequence[str]) -> list[str]:
    """The runs with a step that a bound worker has begun, by their snapshots, and the runs without a snapshot."""
    found = await snapshots(store, run_ids)
    return [run_id for run_id in run_ids if (run := found.get(run_id)) is None or _has_begun(run)]


def _has_begun(run: Run) -> bool:
    return any(_is_begun(step) for _, step in run.steps_and_items())


def _is_begun(step: StepState) -> bool:
    return step.status is StepStatus.RUNNING and step.sticky is not None


async def _begun(store: Store, run: Run) -> list[tuple[tuple[str, str], Execution, str]]:
    """What the worker of a softly bound run has begun: (task type, worker), execution, and the timer that reports its
    loss."""
    try:
        workflow = expanded(await store.definitions.load(run.workflow_id, run.digest), run)
    except NotFound:
        return []
    if workflow.sticky != "soft" or run.ended:
        return []
    return [
        (
            (plan.task, step.sticky),
            (run.run_id, step_id, step.attempts, step.iteration),
            lost_timer(step_id, step),
        )
        for step_id, step in run.steps_and_items()
        if step.sticky is not None and _is_begun(step) and (plan := workflow.plan_of(step_id)) is not None
    ]


async def _return(store: Store, task: str, worker_id: str, begun: Mapping[Execution, str]) -> int:
    async with store.sticky_tasks.unheld(task, worker_id) as unheld:
        return sum([await _returned(store, worker_id, begun, delivery) for delivery in unheld])


async def _returned(store: Store, worker_id: str, begun: Mapping[Execution, str], delivery: Delivery) -> bool:
    found = decode(delivery.data)
    timer = begun.get((found.run_id, found.step_id, found.attempt, found.iteration))
    if timer is None:  # not begun: the run's own timer gives it to other workers
        await delivery.give_back()
        return False
    log.warning("worker_lost_task", run_id=found.run_id, step_id=found.step_id, worker_id=worker_id)
    ref = TimerRef(timer=timer, step_id=found.step_id, attempt=found.attempt)
    await store.history.append(TimerFired(run_id=found.run_id, timestamp=rfc3339(time.time()), payload=ref))
    await (
        delivery.ack()
    )  # last: after a crash before this line the next round finds it again, and the run ignores the second report
    return True
