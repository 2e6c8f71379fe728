"""What an operator does about one step in a real service: its next attempt now, its completion by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import get
from penstock.actors.control.step_operations import StepRetry, retry_step, skip_step
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.config.limits import KIB
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.run.events import StepOverridden, decode
from penstock.engine.run.state import RunStatus, StepStatus
from tests.actors.test_reruns import PLANNED, World, document, step
from tests.support.waiting import until
from tests.support.world import echo, ended, start

BY_HAND = Raw(b'"by hand"')
END = step("end", "a")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def reaches(store: Store, run_id: str, step_id: str, status: StepStatus) -> None:
    async def there() -> bool:
        found = (await get(store, run_id)).find(step_id)
        return found is not None and found.status is status

    await until(there)


async def no_dead_letters(store: Store, run_id: str) -> bool:
    return run_id not in {letter.run_id for letter in (await store.dead_letters.page(10)).dead_letters}


async def failed(store: Store, run_id: str) -> None:
    assert RunStatus.FAILED is (await ended(store, run_id)).status


async def test_the_wait_for_the_next_attempt_ends_at_once(store: Store, shard: Shard) -> None:
    retry = {"max_attempts": 1, "initial_delay": "1h"}
    async with echo(store, "t", world := World()):
        world.broken = {"a"}
        world.kind = "retriable"
        run_id = await start(store, document(step("a", retry=retry)))

        async def waits() -> bool:
            return (await get(store, run_id)).steps["a"].due is not None and world.seen["a"] == 1

        await until(waits)
        world.broken = set()
        assert StepRetry(resumed=False, attempt=2) == await retry_step(store, run_id, "a")
        run = await ended(store, run_id)
        assert (RunStatus.COMPLETED, 2) == (run.status, world.seen["a"])
    with pytest.raises(Conflict, match="does not wait for its next attempt: it is completed"):
        await retry_step(store, run_id, "a")


async def test_a_failed_run_goes_on_at_the_step(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World()):
        world.broken = {"end"}
        run_id = await start(store, document(step("a"), END, step("last", "end")))
        await failed(store, run_id)
        world.broken = set()
        for wrong, why in (("a", "has not failed: it is completed"), ("last", 'depends on "end", which is failed')):
            with pytest.raises(Conflict, match=why):
                await retry_step(store, run_id, wrong)
        with pytest.raises(NotFound, match='no step "b"'):
            await retry_step(store, run_id, "b")
        assert StepRetry(resumed=True) == await retry_step(store, run_id, "end")
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert await no_dead_letters(store, run_id)


async def test_a_step_that_waits_for_a_worker_is_completed_by_hand_and_its_task_withdrawn(
    store: Store, shard: Shard
) -> None:
    async with echo(store, "t", World()):
        run_id = await start(store, document(step("a", task="nobody"), END))
        await reaches(store, run_id, "a", StepStatus.QUEUED)
        assert StepStatus.COMPLETED is await skip_step(store, run_id, "a", BY_HAND, "ada")
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, True, b'"by hand"') == (
        run.status,
        run.steps["a"].overridden,
        bytes(await output_of(store, run, "end")),
    )
    events = [decode(one.data) for one in await store.history.read(run_id)]
    assert ["ada"] == [event.payload.by for event in events if isinstance(event, StepOverridden)]
    async with echo(store, "nobody") as worker:
        await ended(store, await start(store, document(step("x", task="nobody"))))
    assert {run_id} & {task_id.partition(".")[0] for task_id in worker.seen} == set()


async def test_a_step_of_a_failed_run_is_completed_by_hand_and_the_run_goes_on(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World()):
        world.broken = {"a"}
        run_id = await start(store, document(step("a"), END))
        await failed(store, run_id)
        with pytest.raises(Conflict, match='depends on "a", which is failed'):
            await skip_step(store, run_id, "end", BY_HAND)
        large = Raw(orjson.dumps("x" * 100 * KIB))
        await skip_step(store, run_id, "a", large)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, 1, bytes(large)) == (
        run.status,
        world.seen["a"],
        bytes(await output_of(store, run, "end")),
    )
    assert await no_dead_letters(store, run_id)
    with pytest.raises(Conflict, match='step "a" has completed already: it is completed'):
        await skip_step(store, run_id, "a", BY_HAND)


async def test_of_many_who_complete_it_one_does(store: Store, shard: Shard) -> None:
    run_id = await start(store, document(step("a", task="nobody")))
    await reaches(store, run_id, "a", StepStatus.QUEUED)
    answers = await asyncio.gather(
        *(skip_step(store, run_id, "a", Raw(b"%d" % n)) for n in range(8)), return_exceptions=True
    )
    assert [StepStatus.COMPLETED] == [one for one in answers if not isinstance(one, Conflict)]
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status


KINDS = {
    "sleep": {"id": "a", "type": "sleep", "config": {"duration": "1h"}},
    "wait_for_event": {"id": "a", "type": "wait_for_event", "config": {"event": "paid"}},
    "approval": {"id": "a", "type": "approval"},
    "agent_loop": step("a", task="nobody", type="agent_loop", config={"max_iterations": 3}),
    "planner": step("a", task="nobody", type="planner"),
    "http": {"id": "a", "type": "http", "config": {"url": "http://127.0.0.1:9/"}},
    "map": step("a", task="nobody", type="map", config={"max_concurrency": 2}),
    "sub_workflow": {"id": "a", "type": "sub_workflow", "config": {"workflow": "child"}},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_of_any_kind_is_completed_by_hand(store: Store, shard: Shard, kind: str) -> None:
    child = await start(store, {"name": "child", "steps": [step("x", task="nobody")]})
    await run_operations.cancel(store, child)
    async with echo(store, "t", World()):
        run_id = await start(store, document(KINDS[kind], END), b"[1,2,3]")
        out = StepStatus.QUEUED if kind in ("agent_loop", "planner", "http") else StepStatus.RUNNING
        await reaches(store, run_id, "a", out)
        before = await get(store, run_id)
        await skip_step(store, run_id, "a", BY_HAND)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, b'"by hand"') == (run.status, bytes(await output_of(store, run, "end")))
    step_, items = run.steps["a"], run.steps["a"].items
    assert (None, None, None, None) == (step_.due, step_.wake_at, step_.until, step_.waits_for)
    if kind == "map":
        assert items is not None
        assert (3, 0) == (items.counts[5], items.out)
    if kind == "sub_workflow":
        cancelled = await ended(store, before.steps["a"].child_run_id or "")
        assert RunStatus.CANCELLED is cancelled.status
        assert (cancelled.error or "").endswith(": it was completed by hand")


async def test_a_planner_is_completed_by_hand_only_before_its_plan(store: Store, shard: Shard) -> None:
    async with echo(store, "t", World(p=PLANNED)):
        steps = [{"id": "x", "task": "nobody"}, {"id": "y", "task": "t", "depends_on": ["x"]}]
        async with echo(store, "plans", World(p={"steps": steps})):
            run_id = await start(store, document(step("p", task="plans", type="planner")))
            await reaches(store, run_id, "p.x", StepStatus.QUEUED)
        with pytest.raises(Conflict, match='the plan of step "p" is part of the run'):
            await skip_step(store, run_id, "p", BY_HAND)
        await skip_step(store, run_id, "p.x", BY_HAND)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, b'"by hand"') == (run.status, bytes(await output_of(store, run, "p")))


@pytest.mark.parametrize("which", ["a", "a.on_failure"])
@pytest.mark.parametrize("after_failure", [False, True])
async def test_a_handler_or_its_step_is_completed_by_hand(
    store: Store, shard: Shard, which: str, after_failure: bool
) -> None:
    handler = {"task": "t" if after_failure else "nobody"}
    async with echo(store, "t", world := World()):
        world.broken = {"a", "a.on_failure"}
        run_id = await start(store, document(step("a", on_failure=handler), END))
        if after_failure:
            await failed(store, run_id)
        else:
            await reaches(store, run_id, "a.on_failure", StepStatus.QUEUED)
        done = await skip_step(store, run_id, which, BY_HAND)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, b'"by hand"') == (run.status, bytes(await output_of(store, run, "end")))
    assert done is run.steps["a"].status
    assert StepStatus.RECOVERED is done if which == "a.on_failure" else StepStatus.COMPLETED is done


async def test_a_run_that_has_undone_its_steps_is_not_changed_by_hand(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World()):
        world.broken = {"b"}
        run_id = await start(store, document(step("a", compensate={"task": "t"}), step("b", "a")))
        await failed(store, run_id)
    for change in (skip_step(store, run_id, "b", BY_HAND), retry_step(store, run_id, "b")):
        with pytest.raises(Conflict, match="undone its steps"):
            await change


async def test_elements_of_a_map_are_no_steps_of_their_own(store: Store, shard: Shard) -> None:
    run_id = await start(store, document(step("m", task="nobody", type="map")), b"[1]")
    await reaches(store, run_id, "m", StepStatus.RUNNING)
    with pytest.raises(Conflict, match='only the whole map "m"'):
        await skip_step(store, run_id, "m.0", BY_HAND)
    with pytest.raises(NotFound, match=r'no step "m\.7"'):
        await skip_step(store, run_id, "m.7", BY_HAND)
