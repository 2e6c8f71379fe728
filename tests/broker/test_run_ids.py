"""The ids of runs."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from penstock.broker import run_ids
from penstock.broker.run_ids import TICK_S, RunIds, keyed_run_id, made_at, new_run_id
from penstock.engine.definition.identifiers import is_run_id


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(run_ids, "time", made)
    run_ids.RUN_IDS.restart()
    yield made
    run_ids.RUN_IDS.restart()


def _one() -> str:
    return new_run_id()


def test_ids_of_one_tick_follow_each_other(clock: Clock) -> None:
    ids = RunIds()

    made = [ids.new() for _ in range(1000)]

    numbers = [int(run_id, 16) for run_id in made]
    assert all(is_run_id(run_id) for run_id in made)
    assert numbers == list(range(numbers[0], numbers[0] + 1000))
    assert {(RFC_4122, 7)} == {(UUID(run_id).variant, UUID(run_id).version) for run_id in made}


def test_the_next_tick_begins_with_another_random_id(clock: Clock) -> None:
    ids = RunIds()
    first = ids.new()
    clock.now += TICK_S * 0.99
    assert int(first, 16) + 1 == int(ids.new(), 16)

    clock.now += TICK_S * 0.01

    following = ids.new()
    assert first < following
    assert first[16:28] != following[16:28]


def test_a_clock_that_is_put_back_begins_another_tick(clock: Clock) -> None:
    ids = RunIds()
    first = ids.new()

    clock.now -= 1.0

    assert first[16:28] != ids.new()[16:28]


def test_an_id_says_when_it_was_made() -> None:
    before = time.time()

    made = made_at(new_run_id())

    assert before - TICK_S - 0.01 <= made <= time.time()


def test_threads_get_different_ids() -> None:
    ids = RunIds()
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [ids.new() for _ in range(500)], range(20)))

    assert 10_000 == len({run_id for some in made for run_id in some})


def test_a_copy_of_a_process_does_not_give_the_ids_of_the_original(clock: Clock) -> None:
    mine = new_run_id()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        theirs = pool.apply(_one)

    assert 1 << 32 < abs(int(theirs, 16) - int(mine, 16))


def test_a_key_has_one_id() -> None:
    assert is_run_id(keyed_run_id("w", "k"))
    assert keyed_run_id("w", "k") == keyed_run_id("w", "k")
    assert 3 == len({keyed_run_id("w", "k"), keyed_run_id("w", "l"), keyed_run_id("v", "k")})
