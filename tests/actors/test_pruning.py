"""Runs that are pruned over a real broker: all of it goes, or nothing, whatever happens beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations, step_operations
from penstock.actors.control.rerunning import RerunWish, rerun
from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.actors.maintenance.pruning import CHANGED, PrunedRuns, prune
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load, load_many
from penstock.broker import far_events, names, record_keys
from penstock.broker.nats.headers import EXPECT_SEQ
from penstock.broker.nats.publisher import Publisher
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.process.background import all_of, end
from penstock.config.process.background import start as background
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Released, Requested
from penstock.engine.run.events import StepCompleted, WorkflowFailed, WorkflowRemoved, decode, encode
from penstock.engine.run.state import RunStatus
from tests.support.limits import decided, records
from tests.support.waiting import until
from tests.support.world import Echo, chain, echo, ended, register, start

RUNS = 12
AT = "2026-01-01T00:00:00Z"


@pytest.fixture
async def index(store: Store, broker_settings: BrokerSettings, tmp_path: Path) -> AsyncIterator[RunIndex]:
    async with open_store(broker_settings, "index") as own:
        following = background(follow(own, index_path(tmp_path), load_many), name="index")
        with closing(RunIndex(index_path(tmp_path))) as reader:
            await reader.there(20)
            yield reader
        await end(following)


@pytest.fixture
async def shard(broker_settings: BrokerSettings) -> AsyncIterator[AsyncExitStack]:
    """A shard, until this is closed."""
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(open_store(broker_settings, "shard"))
        await stack.enter_async_context(open_shard(own, new_member("shard")))
        yield stack


async def pruned(store: Store, index: RunIndex, *run_ids: str) -> PrunedRuns:
    """The result of pruning, with an index that is up to date."""
    assert await index.caught_up(await store.history.last_seq(), 20)
    return await prune(store, index, run_ids)


async def traces(store: Store, run_id: str) -> list[str]:
    """Every subject of any stream that names the run."""
    listed = (await store.broker.api("STREAM.NAMES"))["streams"]
    found = [subject for stream in listed for subject in await store.broker.subjects(stream, ">")]
    return [subject for subject in found if run_id in subject]


async def left(store: Store, run_id: str) -> None:
    """Return when all that is left of the run is that it was removed, and that its snapshot was."""
    marks = [names.key_subject(names.RUNS, run_id), names.stored_subject(run_id)]

    async def is_erased() -> bool:
        return sorted(await traces(store, run_id)) == marks and await store.runs.get(run_id) is None

    await until(is_erased)
    assert [WorkflowRemoved] == [type(decode(one.data)) for one in await store.history.read(run_id)]


async def saved(store: Store, run_id: str) -> str:
    """The run, once its shard has written its end."""
    await ended(store, run_id)

    async def is_saved() -> bool:
        entry, last = await store.runs.get(run_id), await store.history.last(run_id)
        carried = last is not None and names.owner_state(last.headers) is not None
        return carried or (entry is not None and b'"finished_at"' in entry.value)

    await until(is_saved)
    return run_id


async def refuse(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "no", "non_retriable")


async def failed(store: Store, name: str, runs: int = 1) -> list[str]:
    definition, digest = await register(store, chain(name, 1))
    async with echo(store, f"{name}.echo", refuse):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * runs)
        return [await saved(store, run_id) for run_id in run_ids]


async def test_a_former_owner_cannot_write_the_first_snapshot_of_a_removed_run(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    """It was frozen with the message in its hands, before there was any."""
    [run_id] = await failed(store, "frozen")
    first = await store.runs.get(run_id)
    assert first is not None
    await pruned(store, index, run_id)
    await left(store, run_id)
    with pytest.raises(Conflict):
        await store.runs.put(run_id, first.value, 0)
    with pytest.raises(NotFound):
        await run_operations.get(store, run_id)


async def test_nothing_of_a_pruned_run_is_left_anywhere(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    [run_id], [other] = await failed(store, "spoken"), await failed(store, "kept")
    for one in (run_id, other):
        await store.checkpoints.put(record_keys.step_key(one, "s0"), b"1")
        await store.sticky_bindings.put(one, b"w")
        await run_operations.signal(store, one, "late", b"1")
        await store.logs.send(one, "s0", b"{}", f"{one}.1")
        await store.chunks.send(one, "s0", b"{}", f"{one}.2")
    before, kept = await traces(store, run_id), await traces(store, other)
    result = await pruned(store, index, run_id)
    assert PrunedRuns([run_id], []) == result
    assert (await load(store, run_id)).run is None
    await left(store, run_id)
    assert len(before) >= 8
    assert kept == await traces(store, other)
    assert await index.caught_up(await store.history.last_seq(), 20)
    assert {} == index.statuses([run_id])
    assert {other: "failed"} == index.statuses([other])


@pytest.mark.parametrize(("far", "most"), [(0, 256), (0, 2), (100_000, 256)])
async def test_what_began_long_before_its_removal_goes_one_by_one(
    store: Store,
    index: RunIndex,
    shard: AsyncExitStack,
    monkeypatch: pytest.MonkeyPatch,
    far: int,
    most: int,
) -> None:
    """Unless there is much of it. Events of others, and what comes behind the removal, are none of its."""
    erase, erased = Publisher.erase, list[int]()

    async def erase_and_note(publisher: Publisher, stream: str, seq: int) -> None:
        assert stream == names.HISTORY
        erased.append(seq)
        await erase(publisher, stream, seq)

    monkeypatch.setattr(far_events, "FAR", far)
    monkeypatch.setattr(far_events, "FEW", most)
    monkeypatch.setattr(Publisher, "erase", erase_and_note)
    run_ids = await failed(store, f"far-{far}-{most}", 4)
    kept = [one.seq for one in await store.history.read(run_ids[0])]
    seqs = [one.seq for run_id in run_ids[1:] for one in await store.history.read(run_id)]
    await pruned(store, index, *run_ids[1:])
    for run_id in run_ids[1:]:
        await left(store, run_id)
    assert (sorted(seqs) if far == 0 and most > 2 else []) == sorted(erased)
    assert kept == [one.seq for one in await store.history.read(run_ids[0])]


async def test_a_removal_counts_for_who_finds_the_end_before_it_deleted(store: Store) -> None:
    """Its owner deletes the last event first, and may stop there."""
    run_id = await start(store, chain("halfway", 1))
    await store.history.append(WorkflowFailed(run_id=run_id, timestamp=AT))
    ended = await store.history.last(run_id)
    assert ended is not None
    assert await store.history.append_removal(WorkflowRemoved(run_id=run_id, timestamp=AT), ended.seq)
    removal = await store.history.last(run_id)
    assert removal is not None
    whole = await load(store, run_id)
    await store.history.erase(ended.seq)
    halfway = await load(store, run_id)
    assert [removal.seq] * 2 == [whole.removed, halfway.removed]
    assert (None, None) == (whole.run, halfway.run)


@pytest.mark.parametrize("of_other", [False, True])
async def test_a_removal_does_not_count_for_a_run_that_has_not_ended(store: Store, of_other: bool) -> None:
    """Nor if it was stored on a condition about another run, whose sequence nothing of this one has."""
    run_id, other = await start(store, chain("unended", 1)), await start(store, chain("unended", 1))
    first, latest = await store.history.last(run_id), await store.history.last(other)
    assert first is not None
    assert latest is not None
    seq, about = (latest.seq, other) if of_other else (first.seq, run_id)
    condition = {EXPECT_SEQ: str(seq), f"{EXPECT_SEQ}-Subject": names.stored_subject(about)}
    removal = encode(WorkflowRemoved(run_id=run_id, timestamp=AT))
    await store.publisher.send(names.history_subject(run_id), removal, condition)
    found = await load(store, run_id)
    assert found.run is not None
    assert ("running", 0) == (found.run.status, found.removed)


async def test_a_run_that_has_not_ended_stays(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    parked, unknown = await start(store, chain("parked", 1)), "0" * 32
    result = await pruned(store, index, parked, unknown)
    assert [] == result.pruned
    assert {parked: "it is running", unknown: "it is not there any more"} == {
        one.run_id: one.reason for one in result.skipped
    }
    async with echo(store, "parked.echo"):
        assert RunStatus.COMPLETED is (await ended(store, parked)).status


async def test_who_prunes_again_finds_nothing(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    run_ids = await failed(store, "twice", 3)
    assert run_ids == (await pruned(store, index, *run_ids)).pruned
    assert [] == (await pruned(store, index, *run_ids)).pruned
    page = await index.find(Selection(workflow="twice"), 10, None)
    assert [] == page.run_ids


async def test_what_was_pruned_while_no_engine_lives_is_gone_and_goes_when_one_does(
    store: Store, index: RunIndex, shard: AsyncExitStack, broker_settings: BrokerSettings
) -> None:
    run_ids = await failed(store, "orphans", 3)
    await shard.aclose()
    assert run_ids == (await pruned(store, index, *run_ids)).pruned
    assert [] == await load_many(store, run_ids)
    with pytest.raises(NotFound):
        await run_operations.replay(store, run_ids[0])
    async with open_store(broker_settings, "next") as own, open_shard(own, new_member("next")):
        for run_id in run_ids:
            await left(store, run_id)


async def test_a_slot_that_a_removed_run_is_granted_is_given_back(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    """Its request came late, behind the release of a run that had ended."""
    [run_id] = await failed(store, "granted")
    await pruned(store, index, run_id)
    await left(store, run_id)
    name = LimitName(LimitKind.RUNS, "granted")
    request = Requested(name=name, holder=f"{run_id}.0", run_id=run_id, allowed=Allowed(1))
    await (await store.limit_log.request(request))

    async def is_given_back() -> bool:
        return any(isinstance(one, Released) and one.holder == f"{run_id}.0" for one in await records(store))

    await until(is_given_back)
    assert [one.granted[0].holder for one in await decided(store, "granted")] == [f"{run_id}.0"]
    assert "backstop" not in {one.why for one in await records(store) if isinstance(one, Released)}


@pytest.mark.parametrize("verb", ["replay", "retry"])
async def test_of_a_removal_and_a_retry_at_once_one_succeeds(
    store: Store, index: RunIndex, shard: AsyncExitStack, verb: str
) -> None:
    run_ids = await failed(store, f"raced.{verb}", RUNS)
    assert await index.caught_up(await store.history.last_seq(), 20)

    async def again(run_id: str) -> bool:
        try:
            if verb == "replay":
                await run_operations.replay(store, run_id)
            else:
                await step_operations.retry_step(store, run_id, "s0")
        except (NotFound, Conflict):
            return False
        return True

    async def removed(run_id: str) -> bool:
        return (await prune(store, index, [run_id])).pruned == [run_id]

    async with echo(store, f"raced.{verb}.echo"):
        for number, run_id in enumerate(run_ids):
            works = [again(run_id), removed(run_id)]
            won = await all_of(works if number % 2 else works[::-1])
            resumed, gone = won if number % 2 else won[::-1]
            assert resumed != gone, "exactly one of them has succeeded"
            if gone:
                await left(store, run_id)
            else:
                assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_rerun_beside_the_removal_is_whole_or_says_why_not(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    definition, digest = await register(store, chain("copied", 2))
    async with echo(store, "copied.echo"):
        first = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * RUNS)
        for run_id in first:
            await saved(store, run_id)
        assert await index.caught_up(await store.history.last_seq(), 20)

        async def again(run_id: str) -> str | None:
            try:
                return (await rerun(store, run_id, RerunWish(from_step="s1"))).run_id
            except (NotFound, Conflict):
                return None

        for run_id in first:
            new, _ = await all_of([again(run_id), _quietly(store, index, run_id)])
            run = None if new is None else await ended(store, new)
            if run is not None and run.status is not RunStatus.COMPLETED:
                assert "not there any more" in (run.error or "")


async def _quietly(store: Store, index: RunIndex, run_id: str) -> str | None:
    await prune(store, index, [run_id])
    return None


async def test_what_runs_goes_on_while_others_are_pruned(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    definition, digest = await register(store, chain("busy", 3))
    async with echo(store, "busy.echo"):
        old = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 60)
        for run_id in old:
            await saved(store, run_id)
        before = (await store.broker.api(f"STREAM.INFO.{names.HISTORY}"))["state"]["bytes"]
        new: list[str] = []
        for number in range(6):
            new += await run_operations.start_all(store, definition, digest, [Raw(b"2")] * 10)
            result = await pruned(store, index, *old[number * 10 : number * 10 + 10], *new)
            assert set(old[number * 10 : number * 10 + 10]) <= set(result.pruned)
            new = [run_id for run_id in new if run_id not in result.pruned]  # those that have ended by now
        for run_id in new:
            assert RunStatus.COMPLETED is (await ended(store, run_id)).status
        for run_id in old:
            await left(store, run_id)
        assert (await pruned(store, index, *new)).pruned is not None
        assert before > (await store.broker.api(f"STREAM.INFO.{names.HISTORY}"))["state"]["bytes"]


async def test_what_comes_late_for_a_pruned_run_is_no_dead_letter(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    [run_id] = await failed(store, "late")
    await pruned(store, index, run_id)
    await left(store, run_id)
    letters = await store.dead_letters.last_seq()
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, payload=Raw(b"1")))
    await left(store, run_id)
    assert letters == await store.dead_letters.last_seq()


async def test_a_run_that_has_changed_since_it_was_read_stays(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    [run_id] = await failed(store, "changed")
    event = WorkflowRemoved(run_id=run_id, v=2)
    last = (await store.history.last_of([run_id]))[run_id]
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, payload=Raw(b"1")))
    assert not await store.history.append_removal(event, last.seq)
    assert (await load(store, run_id)).run is not None
    assert "it has just changed" == CHANGED


async def test_children_of_a_run_that_goes_on_stay_and_go_after_it(
    store: Store, index: RunIndex, shard: AsyncExitStack
) -> None:
    await register(store, chain("inner", 1))
    steps = [
        {"id": "call", "type": "sub_workflow", "config": {"workflow": "inner"}, "depends_on": []},
        {"id": "after", "task": "outer.after", "depends_on": ["call"]},
    ]
    async with echo(store, "inner.echo"):
        parent = await start(store, {"name": "outer", "steps": steps})

        async def child_of() -> str | None:
            run = (await load(store, parent)).run
            return None if run is None else run.steps["call"].child_run_id

        child = str(await until(child_of))
        await saved(store, child)
        assert [f"its parent, run {parent}, is running"] == [
            one.reason for one in (await pruned(store, index, child)).skipped
        ]
        async with echo(store, "outer.after"):
            await saved(store, parent)
        assert [child, parent] == (await pruned(store, index, child, parent)).pruned


async def test_a_run_whose_rerun_has_not_ended_stays(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    [run_id] = await failed(store, "again")
    new = (await rerun(store, run_id, RerunWish())).run_id
    [skipped] = (await pruned(store, index, run_id)).skipped
    assert f"its rerun, run {new}, is running" == skipped.reason
    await run_operations.cancel(store, new)
    await saved(store, new)
    assert [run_id] == (await pruned(store, index, run_id)).pruned


async def test_a_dry_run_changes_nothing(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    [run_id] = await failed(store, "asked")
    seq = await store.history.last_seq()
    assert await index.caught_up(seq, 20)
    assert [run_id] == (await prune(store, index, [run_id], dry_run=True)).pruned
    assert seq == await store.history.last_seq()
    assert (await load(store, run_id)).run is not None


async def test_only_what_ended_before_the_time_goes(store: Store, index: RunIndex, shard: AsyncExitStack) -> None:
    [run_id] = await failed(store, "aged")
    now = await store.history.now()
    assert await index.caught_up(await store.history.last_seq(), 20)
    assert PrunedRuns([], []) == await prune(store, index, [run_id], now - 3600)
    assert [run_id] == (await prune(store, index, [run_id], now + 3600)).pruned
