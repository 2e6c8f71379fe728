"""An engine with one shard reads all partitions by one consumer: a process that dies while it is made, or while it is
acknowledged, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker import names
from penstock.config.process.crash_points import Point
from tests.e2e.crash_scenarios import Meanwhile, approval, shard_is_killed, shard_stops_in_peace
from tests.support.crashing import Place, World, place, world
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)

COMMON_POINTS: tuple[Point, ...] = ("handover.all_claimed", "handover.common_consumer_made")
CASES: tuple[tuple[Point, int], ...] = (
    *((point, 1) for point in COMMON_POINTS),
    ("member.joined", 1),
    ("handover.claimed", 1),
    ("handover.claimed", 7),
    ("shard.acknowledging", 1),
    ("shard.acknowledged", 2),
)
ON_THE_WAY_OUT: tuple[Point, ...] = ("handover.withdrawn", "shard.drained", "handover.released", "member.left")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("alone"), shards=1) as found:
        found.start_worker()
        yield found


@pytest.mark.parametrize(("point", "passage"), CASES)
async def test_a_death_on_the_way_to_a_common_consumer_changes_nothing(
    alone: Place, point: Point, passage: int
) -> None:
    await _is_as_in_peace(alone, point, passage, shard_is_killed)


@pytest.mark.parametrize("point", ON_THE_WAY_OUT)
async def test_a_death_while_all_is_handed_over_changes_nothing(alone: Place, point: Point) -> None:
    await _is_as_in_peace(alone, point, 1, shard_stops_in_peace)


async def _is_as_in_peace(alone: Place, point: Point, passage: int, trouble: Meanwhile) -> None:
    async with world(alone) as at_hand:
        name = f"{point}-{passage}"
        expected = await at_hand.outcome(f"{name}-in-peace", await approval()(at_hand, f"{name}-in-peace"))
        alone.arm(point, passage)
        try:
            found = await at_hand.outcome(name, await approval(trouble)(at_hand, name))
            await alone.died(point)
        finally:
            alone.forget(point)
        assert expected == found
        await until(lambda: _reads_by_one(at_hand))


async def _reads_by_one(at_hand: World) -> bool:
    """Whether there is one consumer of an engine, which all claims name."""
    store = at_hand.store
    claimed = {found.claim.consumer for found in (await store.owners.read()).claims.values()}
    listed = (await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {"offset": 0}))["consumers"] or []
    return claimed == {name for name in listed if names.engine_consumer_in(name) is not None} and len(claimed) == 1
