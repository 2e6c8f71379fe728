"""The versions of a workflow: which there are, which is the latest, and that deleting can break off anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from penstock.broker import names, record_keys
from penstock.broker.records import definitions, version_list
from penstock.broker.records.definitions import Definitions
from penstock.broker.records.version_list import StoredVersion, VersionList
from penstock.broker.store import Store
from penstock.config.limits import VERSIONS_LISTED_MAX
from penstock.engine.definition.definitions import WorkflowDef, digest, to_json
from penstock.engine.errors import NotFound
from penstock.engine.validation import parse


@pytest.fixture
def name() -> str:
    return f"a.{uuid4().hex[:8]}"


class DiedError(Exception):
    pass


def definition(name: str, version: str = "1", task: str = "t") -> WorkflowDef:
    return parse({"name": name, "version": version, "steps": [{"id": "a", "task": task}]})


async def labels(store: Store, name: str) -> list[str]:
    return [one.version for one in await store.definitions.versions(name)]


def dying_at(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """The process dies when it passes this point."""

    def reached(point: str) -> None:
        if point == wanted:
            raise DiedError(point)

    monkeypatch.setattr(definitions, "reached", reached)


async def died(monkeypatch: pytest.MonkeyPatch, point: str, work: Callable[[], Awaitable[Any]]) -> None:
    with monkeypatch.context() as patched:
        dying_at(patched, point)
        with pytest.raises(DiedError):
            await work()


async def test_versions_are_newest_first_and_each_definition_once(store: Store, name: str) -> None:
    digests = [await store.definitions.register(definition(name, version)) for version in ("1", "2", "3", "1")]
    assert ["1", "3", "2"] == await labels(store, name)
    assert [digests[0], digests[2], digests[1]] == [one.digest for one in await store.definitions.versions(name)]
    latest, found = await store.definitions.latest(name)
    assert ("1", digests[0]) == (latest.version, found)
    assert "t" == (await store.definitions.load(name, digests[1])).steps["a"].task


async def test_registering_the_same_again_writes_nothing(store: Store, name: str) -> None:
    await store.definitions.register(definition(name))
    before = await store.definitions.versions(name), await written(store)
    await store.definitions.register(definition(name))
    assert before == (await store.definitions.versions(name), await written(store))


async def test_a_label_means_what_was_registered_last_under_it(store: Store, name: str) -> None:
    for version, task in (("1", "first"), ("2", "second"), ("1", "third")):
        await store.definitions.register(definition(name, version, task))
    for version, task in (("1", "third"), ("2", "second")):
        found, found_digest = await store.definitions.version(name, version)
        assert (version, task) == (found.version, found.steps[0].task)
        assert digest(to_json(found)) == found_digest
    with pytest.raises(NotFound, match='has no version "3"'):
        await store.definitions.version(name, "3")


async def test_a_deleted_workflow_is_gone_and_its_definitions_are_not(store: Store, name: str) -> None:
    other = f"{name}.b"
    digests = [await store.definitions.register(definition(name, version)) for version in ("1", "2")]
    await store.definitions.register(definition(other))
    await store.definitions.delete(name)
    for gone in (store.definitions.latest, store.definitions.versions, store.definitions.delete):
        with pytest.raises(NotFound, match=f'workflow "{name}" is not registered'):
            await gone(name)
    with pytest.raises(NotFound):
        await store.definitions.version(name, "1")
    assert ["1", "2"] == [(await fresh(store).load(name, one)).version for one in digests]
    assert other in {one.name for one in await store.definitions.all()}
    assert name not in {one.name for one in await store.definitions.all()}


async def test_a_workflow_that_is_registered_after_it_was_deleted_begins_anew(store: Store, name: str) -> None:
    await store.definitions.register(definition(name, "1"))
    await store.definitions.delete(name)
    await store.definitions.register(definition(name, "2"))
    assert ["2"] == await labels(store, name)
    await store.definitions.delete(name)
    await store.definitions.register(definition(name, "2"))
    assert ["2"] == await labels(store, name)


async def test_a_deletion_that_broke_off_is_completed_by_the_next_one(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.definitions.register(definition(name))
    await died(monkeypatch, "definition.unlisted", lambda: store.definitions.delete(name))
    assert (["1"], "1") == (await labels(store, name), (await store.definitions.version(name, "1"))[0].version)
    await store.definitions.delete(name)
    with pytest.raises(NotFound):
        await store.definitions.latest(name)
    with pytest.raises(NotFound):
        await store.definitions.delete(name)


async def test_after_a_deletion_that_broke_off_the_workflow_can_be_registered(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.definitions.register(definition(name, "1"))
    await died(monkeypatch, "definition.unlisted", lambda: store.definitions.delete(name))
    await store.definitions.register(definition(name, "2"))
    assert ["2"] == await labels(store, name)
    assert "2" == (await store.definitions.latest(name))[0].version


@pytest.mark.parametrize("point", ["definition.stored", "definition.listed"])
async def test_a_registration_that_broke_off_leaves_the_former_one_and_can_be_repeated(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    await store.definitions.register(definition(name, "1"))
    await died(monkeypatch, point, lambda: store.definitions.register(definition(name, "2")))
    assert "1" == (await store.definitions.latest(name))[0].version
    await store.definitions.register(definition(name, "2"))
    assert "2" == (await store.definitions.latest(name))[0].version
    assert ["2", "1"] == await labels(store, name)


async def test_of_many_at_once_the_last_in_the_list_is_the_latest(store: Store, name: str) -> None:
    """Whoever was overtaken has the name follow the list all the same."""
    kept = [fresh(store) for _ in range(6)]

    async def change(number: int) -> None:
        if number % 3 == 2:
            try:
                await kept[number].delete(name)
            except NotFound:
                return
        else:
            await kept[number].register(definition(name, str(number)))

    for _ in range(10):
        async with asyncio.TaskGroup() as group:
            for number in range(len(kept)):
                group.create_task(change(number))
        entry = await store.definitions._bucket.get(record_keys.versions_key(name))
        assert entry is not None
        listed = version_list.decode(entry.value)
        latest = await store.definitions._bucket.get(name)
        assert listed.latest == (None if latest is None else digest(latest.value))


async def test_what_was_registered_before_there_were_lists_is_listed(store: Store, name: str) -> None:
    await registered_as_before(store, *(definition(name, version) for version in ("1", "2", "3", "1")))
    await registered_as_before(store, definition(f"{name}.c"), definition(name.replace(".", "-")))
    assert ["1", "3", "2"] == await labels(store, name)
    at = [one.registered_at for one in await store.definitions.versions(name)]
    assert at == sorted(at, reverse=True)
    await store.definitions.register(definition(name, "4"))
    assert ["4", "1", "3", "2"] == await labels(store, name)


async def test_what_an_older_version_registers_meanwhile_is_listed(store: Store, name: str) -> None:
    await store.definitions.register(definition(name, "1"))
    await registered_as_before(store, definition(name, "2"))
    assert ["2", "1"] == await labels(store, name)
    await store.definitions.register(definition(name, "3"))
    assert ["3", "2", "1"] == await labels(store, name)


async def test_a_list_that_somebody_else_has_written_over_is_made_anew(store: Store, name: str) -> None:
    for version in ("1", "2"):
        await store.definitions.register(definition(name, version))
    await store.definitions._bucket.put(record_keys.versions_key(name), b"[]")
    assert ["2", "1"] == await labels(store, name)
    await store.definitions.register(definition(name, "3"))
    assert ["3", "2", "1"] == await labels(store, name)


def test_a_list_is_bounded_and_the_oldest_go() -> None:
    versions = VersionList()
    for number in range(VERSIONS_LISTED_MAX + 2):
        versions = versions.registered(StoredVersion(str(number), f"{number:032}", "2026-01-01T00:00:00Z"))
    assert VERSIONS_LISTED_MAX == len(versions.versions)
    assert (str(VERSIONS_LISTED_MAX + 1), None) == (versions.versions[0].version, versions.labelled("1"))


def fresh(store: Store) -> Definitions:
    """As another process has them."""
    return Definitions(store.definitions._bucket)


async def written(store: Store) -> int:
    """How many writes the bucket has seen."""
    info = await store.broker.api(f"STREAM.INFO.{names.bucket_stream(names.DEFINITIONS)}")
    return int(info["state"]["last_seq"])


async def registered_as_before(store: Store, *wanted: WorkflowDef) -> None:
    for one in wanted:
        body = to_json(one)
        await store.definitions._bucket.put(record_keys.definition_key(one.name, digest(body)), body)
        await store.definitions._bucket.put(one.name, body)
