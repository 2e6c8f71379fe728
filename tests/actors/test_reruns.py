"""Reruns in a real service: what is taken over is carried out once, and the new history stands for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.control.rerunning import Definition, RerunWish, rerun
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB
from penstock.config.process.background import all_of
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Conflict, Invalid, NotFound
from penstock.engine.run.commands import TakeOver
from penstock.engine.run.events import StepTakenOver, decode
from penstock.engine.run.state import Run, RunStatus
from tests.support.world import Echo, echo, ended, register, start, without_history

BIG = "x" * 100 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


class World:
    """Answers tasks with what is set for their step, or their input. `broken` steps fail for good."""

    def __init__(self, **outputs: object) -> None:
        self.outputs, self.broken = outputs, set[str]()
        self.seen: Counter[str] = Counter()
        self.kind = "non_retriable"

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.seen[task.step_id] += 1
        whole = task.step_id if task.item is None else task.step_id.rpartition(".")[0]
        if self.broken & {task.step_id, whole}:
            await worker.fail(task, "broken", self.kind)
        else:
            found = self.outputs.get(task.step_id, self.outputs.get(whole))
            await worker.complete(task, None if found is None else orjson.dumps(found))


def step(step_id: str, *before: str, **fields: object) -> dict[str, object]:
    return {"id": step_id, "task": "t", "depends_on": [*before], **fields}


def document(*steps: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {"name": "again", "steps": [*steps], **fields}


DIAMOND = document(step("a"), step("left", "a"), step("right", "a"), step("end", "left", "right"))


async def again(store: Store, run_id: str, key: str | None = None, **wish: object) -> Run:
    return await ended(store, (await rerun(store, run_id, RerunWish(**wish), key)).run_id)  # type: ignore[arg-type]


async def test_only_the_step_and_what_depends_on_it_is_carried_out_again(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World(a=1, left=2, right=3)):
        first = await ended(store, await start(store, DIAMOND))
        world.seen.clear()
        world.outputs["left"] = 20
        run = await again(store, first.run_id, from_step="left")
    assert {"left": 1, "end": 1} == world.seen
    assert (RunStatus.COMPLETED, first.run_id, "left") == (run.status, run.rerun_of, run.rerun_from)
    assert {"left": 20, "right": 3} == orjson.loads(bytes(await output_of(store, run, "end")))
    assert (first.steps["a"].started_at, 1) == (run.steps["a"].started_at, run.steps["a"].attempts)


async def test_a_failed_run_is_repeated_from_what_failed(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World(a=1, left=2, right=3)):
        world.broken = {"end"}
        first = await ended(store, await start(store, DIAMOND))
        assert first.status is RunStatus.FAILED
        world.broken = set()
        run = await again(store, first.run_id, from_step="end")
    assert ({"a": 1, "left": 1, "right": 1, "end": 2}, RunStatus.COMPLETED) == (world.seen, run.status)


async def test_without_a_step_everything_is_carried_out_with_the_input(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World()):
        first = await ended(store, await start(store, document(step("a")), b'"old"'))
        same, other = await again(store, first.run_id), await again(store, first.run_id, input=Raw(b'"new"'))
    assert [b'"old"', b'"new"'] == [bytes(await output_of(store, run, "a")) for run in (same, other)]
    assert (3, None, None) == (world.seen["a"], same.rerun_from, same.taking)


async def test_large_outputs_and_given_ones_are_whole_in_the_new_history(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World(a=BIG, left=BIG, right="r", end=None)):
        first = await ended(store, await start(store, DIAMOND))
        given = {"right": Raw(orjson.dumps("by hand"))}
        run = await again(store, first.run_id, from_step="end", outputs=given)
    await without_history(store, first.run_id)
    await store.runs.delete(first.run_id)
    assert {"left": BIG, "right": "by hand"} == orjson.loads(bytes(await output_of(store, run, "end")))
    assert BIG == orjson.loads(bytes(await output_of(store, run, "a")))
    assert {"a": 1, "left": 1, "right": 1, "end": 2} == world.seen


@pytest.mark.parametrize("output", ["small", BIG])
async def test_a_map_is_taken_over_with_its_elements(store: Store, shard: Shard, output: str) -> None:
    steps = [step("m", type="map", config={"on_item_failure": "continue"}), step("end", "m")]
    async with echo(store, "t", world := World(m=output)):
        world.broken = {"m.1"}
        first = await ended(store, await start(store, document(*steps), b"[1,2,3]"))
        run = await again(store, first.run_id, from_step="end")
        twice = await again(store, run.run_id, from_step="end")
    assert {"m.0": 1, "m.1": 1, "m.2": 1, "end": 3} == world.seen
    expected = await output_of(store, first, "m")
    for one in (run, twice):
        assert [bytes(expected)] * 2 == [bytes(await output_of(store, one, step_id)) for step_id in ("m", "end")]
        items = one.steps["m"].items
        assert items is not None
        assert (0, 0, 0, 2, 1, 0) == items.counts
    assert ["ok", "error"] == list(orjson.loads(bytes(expected))[1])


async def test_elements_that_had_completed_are_not_carried_out_again(store: Store, shard: Shard) -> None:
    steps = [step("m", type="map", config={"max_concurrency": 1}), step("b")]
    async with echo(store, "t", world := World()):
        world.broken = {"m.2"}
        first = await ended(store, await start(store, document(*steps), b"[1,2,3]"))
        assert first.status is RunStatus.FAILED
        world.broken = set()
        run = await again(store, first.run_id, from_step="b")
    assert (RunStatus.COMPLETED, b"[1,2,3]") == (run.status, bytes(await output_of(store, run, "m")))
    assert (1, 1, 2) == (world.seen["m.0"], world.seen["m.1"], world.seen["m.2"])


PLANNED = {"steps": [{"id": "x", "task": "t"}, {"id": "y", "task": "t", "depends_on": ["x"]}]}


async def test_a_planner_is_taken_over_with_its_plan(store: Store, shard: Shard) -> None:
    steps = [step("p", type="planner"), step("end", "p")]
    async with echo(store, "t", world := World(p=PLANNED, **{"p.y": "planned"})):
        first = await ended(store, await start(store, document(*steps)))
        run = await again(store, first.run_id, from_step="end")
        inner = await again(store, first.run_id, from_step="p.y")
    assert {"p": 1, "p.x": 1, "p.y": 2, "end": 3} == world.seen
    for one in (run, inner):
        assert first.steps.keys() == one.steps.keys()
        assert b'"planned"' == bytes(await output_of(store, one, "end"))


async def test_a_map_in_a_plan_is_taken_over_at_the_first_try(
    store: Store, shard: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    planned = {"steps": [{"id": "x", "task": "t"}, {"id": "m", "task": "t", "type": "map", "depends_on": ["x"]}]}
    steps = [step("p", type="planner"), step("end", "p")]
    async with echo(store, "t", world := World(p=planned, **{"p.x": [1, 2]})):
        first = await ended(store, await start(store, document(*steps)))
        run = await again(store, first.run_id, from_step="end")
    assert {"p": 1, "p.x": 1, "p.m.0": 1, "p.m.1": 1, "end": 2} == world.seen
    assert b"[1,2]" == bytes(await output_of(store, run, "p.m"))
    assert "run_failed_to_advance" not in caplog.text


async def test_an_output_is_given_to_a_step_of_a_plan(store: Store, shard: Shard) -> None:
    steps = [step("p", type="planner"), step("end", "p")]
    async with echo(store, "t", world := World(p=PLANNED, **{"p.y": "planned"})):
        first = await ended(store, await start(store, document(*steps)))
        run = await again(store, first.run_id, from_step="p.y", outputs={"p.x": Raw(b"7")})
    assert {"p": 1, "p.x": 1, "p.y": 2, "end": 2} == world.seen
    assert (RunStatus.COMPLETED, b"7") == (run.status, bytes(await output_of(store, run, "p.x")))


async def test_a_rerun_from_a_planner_has_another_plan(store: Store, shard: Shard) -> None:
    async with echo(store, "t", world := World(p=PLANNED)):
        first = await ended(store, await start(store, document(step("a"), step("p", "a", type="planner"))))
        world.outputs["p"] = {"steps": [{"id": "z", "task": "t"}]}
        run = await again(store, first.run_id, from_step="p")
    assert ({"a", "p", "p.z"}, 1) == (run.steps.keys(), world.seen["a"])


async def test_recovered_and_skipped_steps_are_taken_over(store: Store, shard: Shard) -> None:
    steps = [step("a", on_failure={"task": "t"}), step("s", when="false"), step("end", "a", "s")]
    async with echo(store, "t", world := World(**{"a.on_failure": "saved"})):
        world.broken = {"a"}
        world.outputs["end"] = 1
        first = await ended(store, await start(store, document(*steps)))
        run = await again(store, first.run_id, from_step="end")
    assert {"a": 1, "a.on_failure": 1, "end": 2} == world.seen
    assert {step_id: one.status for step_id, one in first.steps.items()} == {
        step_id: one.status for step_id, one in run.steps.items()
    }


async def test_a_key_gives_the_same_run_and_another_key_another(store: Store, shard: Shard) -> None:
    async with echo(store, "t", World()):
        first = await ended(store, await start(store, document(step("a"), step("b", "a"))))
        wish = RerunWish("b", outputs={"a": Raw(b"1")})
        ids = [(await rerun(store, first.run_id, wish, key)).run_id for key in ("one", "one", "two")]
        runs = [await ended(store, run_id) for run_id in ids]
    assert (ids[0], 2, [b"1"] * 3) == (ids[1], len({*ids}), [bytes(await output_of(store, run, "b")) for run in runs])
    stored = [decode(one.data) for one in await store.history.read(ids[0])]
    assert 1 == sum(isinstance(event, StepTakenOver) for event in stored)


async def test_what_cannot_be_repeated_is_refused_with_the_reason(store: Store, shard: Shard) -> None:
    steps = [step("m", type="map"), step("b", "m", on_failure={"task": "t"}), step("c", "b")]
    async with echo(store, "t", World()):
        first = await ended(store, await start(store, document(*steps), b"[1]"))

        async def refused(error: type[Exception], **wish: object) -> str:
            with pytest.raises(error) as found:
                await rerun(store, first.run_id, RerunWish(**wish))  # type: ignore[arg-type]
            return str(found.value)

        one = Raw(b"1")
        assert "from: run" in await refused(Invalid, from_step="nowhere")
        assert 'give the map, "m"' in await refused(Invalid, from_step="m.0")
        assert 'has no step "z"' in await refused(Invalid, from_step="c", outputs={"z": one})
        assert 'step "c" is not taken over' in await refused(Invalid, from_step="b", outputs={"c": one})
        definition, digest = await register(store, document(*steps[:2]))
        latest = Definition(definition, digest, None)
        assert 'has no step "c"' in await refused(Invalid, from_step="c", latest=latest)
        definition, digest = await register(store, document(*steps[:1], step("b", "m", timeout="5s"), steps[2]))
        latest = Definition(definition, digest, Schema(Raw(b'{"type":"object"}')))
        assert 'in place of "b"' in await refused(Conflict, from_step="c", latest=latest)
        assert "input" in await refused(Invalid, from_step="b", latest=latest)
    with pytest.raises(NotFound):
        await rerun(store, "0" * 32, RerunWish())
    waiting = await start(store, document(step("a", task="nobody")))
    with pytest.raises(Conflict, match="only one that has ended"):
        await rerun(store, waiting, RerunWish())


async def test_a_run_that_has_undone_its_steps_is_started_afresh_only(store: Store, shard: Shard) -> None:
    steps = [step("a", compensate={"task": "t"}), step("b", "a")]
    async with echo(store, "t", world := World()):
        world.broken = {"b"}
        first = await ended(store, await start(store, document(*steps)))
        with pytest.raises(Conflict, match="has undone its steps"):
            await rerun(store, first.run_id, RerunWish("b"))
        world.broken = set()
        run = await again(store, first.run_id)
    assert ({"a": 2, "a.compensate": 1, "b": 2}, RunStatus.COMPLETED) == (world.seen, run.status)


async def test_what_has_been_taken_over_in_the_same_turn_is_not_asked_for_again(store: Store, shard: Shard) -> None:
    """A rerun whose outputs are all given has them in the events behind its first one."""
    async with echo(store, "t", World(a=1)):
        first = await ended(store, await start(store, document(step("a"), step("b", "a"))))
        run = await again(store, first.run_id, from_step="b", outputs={"a": Raw(b"2")})
    workflow = await store.definitions.load(run.workflow_id, run.digest)
    history = await store.history.read(run.run_id)

    await shard.effects.perform(workflow, run, [TakeOver()], 0.0)

    assert (RunStatus.COMPLETED, b"2") == (run.status, bytes(await output_of(store, run, "a")))
    assert history == await store.history.read(run.run_id)


async def test_a_rerun_whose_original_is_gone_fails_and_says_so(store: Store, broker_settings: BrokerSettings) -> None:
    async with (
        open_store(broker_settings, "shard") as own,
        open_shard(own, new_member("shard")),
        echo(store, "t", World()),
    ):
        first = await ended(store, await start(store, document(step("a"), step("b", "a"))))
    new = (await rerun(store, first.run_id, RerunWish("b"))).run_id
    await without_history(store, first.run_id)
    await store.runs.delete(first.run_id)
    async with open_store(broker_settings, "other") as own, open_shard(own, new_member("other")):
        run = await ended(store, new)
    assert RunStatus.FAILED is run.status
    assert f"run {first.run_id}, whose steps it takes over, is not there any more" in (run.error or "")
    assert RunStatus.FAILED is (await run_operations.get(store, new)).status


async def test_simultaneous_reruns_with_one_key_and_outputs_are_one_run(
    store: Store, broker_settings: BrokerSettings, shard: Shard
) -> None:
    """By several processes, as their connections stand for here."""
    async with (
        open_store(broker_settings, "one") as one,
        open_store(broker_settings, "two") as two,
        echo(store, "t", World()),
    ):
        first = await ended(store, await start(store, document(step("a"), step("b", "a"))))
        wish = RerunWish("b", outputs={"a": Raw(b"1")})
        for number in range(10):
            begun = await all_of(rerun(by, first.run_id, wish, f"at-once-{number}") for by in (one, two) * 4)
            assert 1 == len({(each.run_id, each.seq) for each in begun})
            stored = [decode(each.data) for each in await store.history.read(begun[0].run_id)]
            assert 1 == sum(isinstance(event, StepTakenOver) for event in stored)
