"""Members and claims: each change is made once, by who knew what was there."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.records.owners import Claim, Claimed, Handled, Listed, Member
from penstock.broker.store import Store
from penstock.engine.errors import Conflict

ADA = Member("ada-1", "ada", shard=1, engine="e", host="h", pid=7)


async def test_of_many_who_claim_a_partition_at_once_one_has_it(store: Store) -> None:
    claims = [Claim(f"owner-{number}", f"engine-5-{number}", 9, "log") for number in range(20)]
    found = await asyncio.gather(*(store.owners.claim(5, claim, 0) for claim in claims), return_exceptions=True)
    [winner] = [number for number, one in enumerate(found) if isinstance(one, int)]
    assert 19 == sum(isinstance(one, Conflict) for one in found)
    assert Claimed(claims[winner], found[winner]) == (await store.owners.read()).claims[5]


async def test_a_member_that_was_removed_cannot_renew(store: Store) -> None:
    revision = await store.owners.renew(ADA, 0)
    assert Listed(ADA, revision) == await store.owners.find("ada-1") == (await store.owners.read()).members["ada-1"]
    await store.owners.remove("ada-1", revision)
    with pytest.raises(Conflict):
        await store.owners.renew(ADA, revision)
    assert await store.owners.find("ada-1") is None
    assert "ada-1" not in (await store.owners.read()).members


async def test_a_member_that_has_renewed_cannot_be_removed_for_its_former_silence(store: Store) -> None:
    bob = Member("bob-1", "bob")
    before = await store.owners.renew(bob, 0)
    await store.owners.renew(bob, before)
    with pytest.raises(Conflict):
        await store.owners.remove("bob-1", before)
    assert await store.owners.find("bob-1") is not None


async def test_subscribers_are_notified_and_an_engine_stays_drained(store: Store) -> None:
    changed = asyncio.Event()
    await store.owners.on_change(changed)
    await store.owners.drain("an-engine")
    async with asyncio.timeout(10):
        await changed.wait()
    assert {"an-engine"} == (await store.owners.read()).drained


async def test_the_newer_of_claim_and_note_says_how_far_a_partition_is(store: Store) -> None:
    revision, found = 0, list[int]()
    for kind, start in (("claim", 100), ("note", 150), ("note", 50), ("claim", 120), ("note", 119), ("claim", 90)):
        if kind == "note":
            await store.owners.note_handled({6: Handled(start, "log")})
        else:
            revision = await store.owners.claim(6, Claim("owner", "engine-6-1", start, "log"), revision)
        found.append((await store.owners.read()).handled_before(6, "log"))
    assert [100, 150, 50, 120, 119, 90] == found, "a broker that has lost its end has lost what was handled, too"
    assert 1 == (await store.owners.read()).handled_before(6, "another log")
