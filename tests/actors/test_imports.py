"""Imported runs beside a shard, in the run index, and when they are removed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from uuid import uuid4

from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.imports.importing import checked, store_run
from penstock.actors.imports.reading import read, read_many
from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.actors.maintenance.retention import remove_old_runs
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load, load_many
from penstock.broker import names
from penstock.broker.records.imports import ImportDocument
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.errors import Conflict
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import WorkflowStarted, encode
from penstock.engine.run.state import RunStatus
from penstock.engine.validation import parse
from tests.support.world import chain, echo, ended, register

LONG_AGO = "2001-01-02T03:04:05Z"


def document(workflow: str, run_id: str = "") -> ImportDocument:
    """A run that was started long ago, and of which nothing more is known."""
    run_id = run_id or uuid4().hex
    definition = to_json(parse({"name": workflow, "steps": [{"id": "a", "task": "t"}]}))
    payload = Started(workflow, "1", digest(definition), Raw(b"1"), labels={"of": workflow})
    event = encode(WorkflowStarted(run_id=run_id, timestamp=LONG_AGO, payload=payload, v=2))
    place = b'{"seq":7,"stored_at":"%b",' % LONG_AGO.encode()
    return ImportDocument(run_id, Raw(definition), [Raw(place + event[1:])])


async def brought_in(store: Store, found: ImportDocument) -> str:
    await store_run(store, found, await checked(found))
    return found.run_id


async def test_a_shard_leaves_an_imported_run_alone(store: Store, broker_settings: BrokerSettings) -> None:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        run_id = await brought_in(store, document("apart"))
        same = next(one for one in iter(lambda: uuid4().hex, "") if names.partition(one) == names.partition(run_id))
        definition, found = await register(store, chain("after", 1))
        async with echo(store, "after.echo"):  # what comes later in the same log is carried out
            await run_operations.begin(store, definition, found, Raw(b"1"), run_id=same)
            await ended(store, same)
        assert await store.runs.get(run_id) is None
        assert [] == [one for one in (await store.dead_letters.page()).dead_letters if one.run_id == run_id]
    assert (await read(store, run_id)).status is RunStatus.RUNNING
    assert (await load(store, run_id)).run is None


async def test_of_two_imports_of_one_run_one_is_stored(store: Store) -> None:
    found = document("raced")
    runs = [await checked(found) for _ in range(8)]
    done = await asyncio.gather(*(store_run(store, found, run) for run in runs), return_exceptions=True)
    assert [1, 7] == [sum(isinstance(one, kind) for one in done) for kind in (int, Conflict)]
    assert 1 == len([one for one in await store.imports.keys() if one[0] == found.run_id])


async def test_the_index_has_imports_also_when_it_is_made_again(store: Store, tmp_path: Path) -> None:
    run_id = await brought_in(store, document("indexed"))
    wanted = [
        Selection(workflow="indexed"),
        Selection(labels=("of:indexed",)),
        Selection(text=run_id),
        Selection(workflow="indexed", statuses=frozenset({"running"}), imported=True),
        Selection(workflow="indexed", before="2001-12-31T00:00:00Z"),
    ]
    for number in range(2):
        path = index_path(tmp_path / str(number))
        following = asyncio.create_task(follow(store, path, load_many))
        reader = RunIndex(path)
        assert await reader.caught_up(await store.history.last_seq(), 20)
        for selection in wanted:
            assert [run_id] == (await reader.find(selection)).run_ids, selection
        for selection in (
            Selection(workflow="indexed", imported=False),
            Selection(text="imported"),
            Selection(text="::"),
        ):
            assert [] == (await reader.find(selection)).run_ids, selection
        assert 0 == await reader.count_matching(Selection(workflow="indexed", imported=False))
        assert {"running": 1} == reader.count("indexed")
        following.cancel()


async def test_an_import_counts_from_its_import_on_and_is_removed_whole(store: Store, tmp_path: Path) -> None:
    """Though its run was started long ago, and never ended."""
    path = index_path(tmp_path)
    before = time.time()
    run_id = await brought_in(store, document("aged"))
    following = asyncio.create_task(follow(store, path, load_many))
    assert await RunIndex(path).caught_up(await store.history.last_seq(), 20)
    assert 0 == await remove_old_runs(store, path, before - 60)
    assert [run_id] == [run.run_id for run in await read_many(store, [run_id])]
    assert 1 <= await remove_old_runs(store, path, await store.history.now() + 1)
    assert [] == await read_many(store, [run_id])
    assert [] == [one for one in await store.imports.keys() if one[0] == run_id]
    assert [] == (await RunIndex(path).find(Selection(workflow="aged"))).run_ids
    following.cancel()
    assert run_id == await brought_in(store, document("aged", run_id))  # its id is free again


async def test_the_documents_are_kept_as_long_as_the_history(store: Store) -> None:
    ages = [
        (await store.broker.api(f"STREAM.INFO.{stream}"))["config"]["max_age"]
        for stream in (names.HISTORY, names.bucket_stream(names.IMPORTS))
    ]
    assert ages[0] == ages[1]
