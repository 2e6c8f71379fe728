"""Two versions at once, as in a rolling upgrade: what only the newer one can read waits for it, and nothing else
does."""

from __future__ import annotations

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import run_actor
from penstock.actors.runs.loading import load, load_many
from penstock.broker import names, record_keys
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.engine import formats
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import Run, RunStatus, to_snapshot
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, register, start, without_history

NEWER = formats.VERSION + 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_actor, "UPGRADE_CHECK_S", 0.1)


async def append_newer(store: Store, run_id: str) -> None:
    """The first step's end, as a newer version would tell it."""
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, v=NEWER))


async def waits(store: Store, run_id: str) -> None:
    """Return once a shard has left the run to a newer version: it is reminded of it again and again."""

    async def reminded() -> bool:
        return any(b'"timer":"upgrade"' in one.data for one in await store.history.read(run_id))

    await until(reminded)


async def dead(store: Store, run_id: str) -> list[Stored]:
    return await store.reader.subject(names.DEAD, f"dead.history.{run_id}")


async def test_a_run_with_an_event_of_a_newer_version_waits_and_goes_on_when_that_has_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_shard(store, new_member("shard")), echo(store, "other.echo"):
        run_id = await start(store, chain("newer", 2))
        with capture_logs() as logs:
            await append_newer(store, run_id)
            await waits(store, run_id)
        assert {"run_waits_for_upgrade"} == {line["event"] for line in logs if line["log_level"] == "error"}
        with pytest.raises(NeedsUpgrade):  # nobody is told less than what has happened
            await load(store, run_id)
        other = await start(store, chain("other", 2))
        assert RunStatus.COMPLETED is (await ended(store, other)).status
        assert [other] == [run.run_id for run in await load_many(store, [run_id, other])]
        assert [] == await dead(store, run_id)

        monkeypatch.setattr(formats, "VERSION", NEWER)
        async with echo(store, "newer.echo"):
            assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_an_engine_that_is_upgraded_takes_up_what_its_former_version_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_shard(store, new_member("shard")):
        run_id = await start(store, chain("left", 2))
        await append_newer(store, run_id)
        await waits(store, run_id)
    monkeypatch.setattr(formats, "VERSION", NEWER)
    async with open_shard(store, new_member("shard")), echo(store, "left.echo"):
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert [] == await dead(store, run_id)


async def test_a_run_whose_definition_needs_a_newer_version_waits_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, digest = await register(store, chain("later", 1))
    key = record_keys.definition_key("later", digest)
    bucket = store.bucket(names.DEFINITIONS)
    entry = await bucket.get(key)
    assert entry is not None
    await bucket.put(key, formats.stamped(entry.value, NEWER))
    async with open_shard(store, new_member("shard")):
        run_id = await run_operations.start(store, definition, digest, Raw(b"null"))
        await waits(store, run_id)
        monkeypatch.setattr(formats, "VERSION", NEWER)
        async with echo(store, "later.echo"):
            assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert [] == await dead(store, run_id)


async def test_a_snapshot_of_a_newer_version_is_passed_by_for_the_log(store: Store) -> None:
    async with open_shard(store, new_member("shard")):
        run_id = await start(store, chain("snap", 2))
        await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1))
    run = await written_by_a_newer_version(store, run_id)
    assert run == (await load(store, run_id)).run
    async with open_shard(store, new_member("shard")), echo(store, "snap.echo"):
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_run_of_which_only_a_snapshot_of_a_newer_version_is_left_waits(store: Store) -> None:
    async with open_shard(store, new_member("shard")):
        run_id = await start(store, chain("rest", 2))
        await until(lambda: store.reader.one(names.TASKS, names.task_subject("rest.echo", run_id)))
    await written_by_a_newer_version(store, run_id)
    before = await store.runs.get(run_id)
    await without_history(store, run_id)
    with pytest.raises(NeedsUpgrade):
        await load(store, run_id)
    async with open_shard(store, new_member("shard")):
        await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1))
        await waits(store, run_id)
    assert [] == await dead(store, run_id)
    assert before == await store.runs.get(run_id)


async def test_a_trigger_of_a_newer_version_is_left_to_the_others(store: Store) -> None:
    bucket = store.bucket(names.TRIGGERS)
    await bucket.put("newer", b'{"v":%d,"trigger":{"name":"newer","kind":"tide"}}' % NEWER)
    with pytest.raises(NeedsUpgrade):  # not even written over
        await store.triggers.find("newer")
    assert [] == await store.triggers.all()


async def test_a_list_of_definitions_is_without_those_of_a_newer_version(store: Store) -> None:
    await register(store, chain("known", 1))
    await store.bucket(names.DEFINITIONS).put("unknown", b'{"v":%d,"name":"unknown","steps":[]}' % NEWER)
    assert "unknown" not in [definition.name for definition in await store.definitions.all()]
    assert "known" in [definition.name for definition in await store.definitions.all()]
    with pytest.raises(NeedsUpgrade):
        await store.definitions.latest("unknown")


async def written_by_a_newer_version(store: Store, run_id: str) -> Run:
    """Put the run's snapshot in a form that this version does not know."""
    run = (await load(store, run_id)).run
    assert run is not None
    await store.runs.put(run_id, formats.stamped(to_snapshot(run), NEWER))
    return run
