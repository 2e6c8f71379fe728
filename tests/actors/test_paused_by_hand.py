"""What operators do by hand about a run that is paused: it is in the history at once, and begins nothing before the run
goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.control.pausing import pause, unpause
from penstock.actors.control.rerunning import RerunWish, rerun
from penstock.actors.control.step_operations import StepRetry, retry_step, skip_step
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from penstock.engine.run.events import Event
from penstock.engine.run.state import RunStatus, StepStatus
from tests.actors.test_reruns import World, document, step
from tests.actors.test_run_pauses import queued, saved, until_queued, until_saved
from tests.support.waiting import until
from tests.support.world import Answer, Echo, echo, ended, start

BY_HAND = Raw(b'"by hand"')
TWO = document(step("a", task="nobody"), step("end", "a"))
LATER = {"max_attempts": 2, "initial_delay": "1h"}

__all__ = ["saved"]  # each run has a snapshot


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def test_a_skipped_step_is_completed_at_once_and_what_follows_begins_at_the_resumption(
    store: Store, shard: Shard
) -> None:
    run_id = await start(store, TWO)
    await until_queued(store, run_id, "a")
    await pause(store, run_id)
    assert StepStatus.COMPLETED is await skip_step(store, run_id, "a", BY_HAND)
    with pytest.raises(Conflict, match='step "a" has completed already'):
        await skip_step(store, run_id, "a", BY_HAND)
    async with echo(store, "t", world := World()):

        async def is_saved() -> bool:
            return (await until_saved(store, run_id, paused=True)).steps["a"].status is StepStatus.COMPLETED

        await until(is_saved)
        run = await run_operations.get(store, run_id)
        assert (StepStatus.QUEUED, RunStatus.RUNNING, []) == (
            run.steps["end"].status,
            run.status,
            await queued(store, run_id),
        )
        assert {} == world.seen
        await unpause(store, run_id)
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert {"end": 1} == world.seen


async def test_a_paused_run_whose_last_step_is_skipped_completes(store: Store, shard: Shard) -> None:
    run_id = await start(store, document(step("a", task="nobody")))
    await until_queued(store, run_id, "a")
    await pause(store, run_id)
    await skip_step(store, run_id, "a", BY_HAND)
    run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, None) == (run.status, run.pause)


@pytest.mark.parametrize("times", [1, 2])
async def test_the_attempt_that_is_asked_for_begins_at_the_resumption_and_once(
    store: Store, shard: Shard, times: int
) -> None:
    async with echo(store, "t", world := World()):
        world.broken, world.kind = {"a"}, "retriable"
        run_id = await start(store, document(step("a", retry=LATER)))

        async def waits() -> bool:
            return (await run_operations.get(store, run_id)).steps["a"].due is not None and world.seen["a"] == 1

        await until(waits)
        world.broken = set()
        await pause(store, run_id)
        for _ in range(times):
            assert StepRetry(resumed=False, attempt=2) == await retry_step(store, run_id, "a")

        async def is_kept() -> bool:
            return bool((await until_saved(store, run_id, paused=True)).pause.timers)  # type: ignore[union-attr]

        await until(is_kept)
        assert (1, []) == (world.seen["a"], await queued(store, run_id))
        await unpause(store, run_id)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, 2) == (run.status, world.seen["a"])


async def test_a_resumption_counts_also_if_the_run_ends_right_behind_it(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await start(store, document(step("a")))
    await pause(store, run_id)
    append = store.history.append_orders

    async def append_and_see_it_end(orders: Sequence[Event]) -> int:
        seq = await append(orders)
        await ended(store, run_id)
        return seq

    monkeypatch.setattr(store.history, "append_orders", append_and_see_it_end)
    async with echo(store, "t"):
        assert RunStatus.COMPLETED is (await unpause(store, run_id)).status


async def test_a_paused_run_is_neither_replayed_nor_rerun(store: Store, shard: Shard) -> None:
    run_id = await start(store, TWO)
    await pause(store, run_id)
    seq = (await run_operations.get(store, run_id)).seq
    for refused in (run_operations.replay(store, run_id), rerun(store, run_id, RerunWish())):
        with pytest.raises(Conflict, match="running"):
            await refused
    run = await until_saved(store, run_id, paused=True)
    assert (seq, RunStatus.RUNNING) == (run.seq, run.status)


def fails_once_paused(store: Store) -> Answer:
    """Pauses the run whose task it gets, and fails the task for good."""

    async def answer(worker: Echo, task: TaskPayload) -> None:
        await worker.started(task)
        await pause(store, task.run_id)
        await worker.fail(task, "broken", "non_retriable")

    return answer


@pytest.mark.parametrize("order", ["retry", "replay", "rerun"])
async def test_a_run_that_has_failed_while_it_was_paused_goes_on_unpaused(
    store: Store, shard: Shard, order: str
) -> None:
    """The pause ends with the run: whoever has it go on does not need to resume it."""
    async with echo(store, "t"):
        run_id = await start(store, document(step("a", task="held"), step("end", "a")))
        await until_queued(store, run_id, "a")
        async with echo(store, "held", fails_once_paused(store)):
            assert RunStatus.FAILED is (await ended(store, run_id)).status
        async with echo(store, "held"):
            match order:
                case "retry":
                    assert StepRetry(resumed=True) == await retry_step(store, run_id, "a")
                case "replay":
                    await run_operations.replay(store, run_id)
                case _:
                    run_id = (await rerun(store, run_id, RerunWish())).run_id
            run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, None) == (run.status, run.pause)
