"""What the log of a limit is told again by: who replaces whom. The seeds have few such decisions."""

from __future__ import annotations

import pytest

from penstock.engine.limits.names import LimitKind, LimitName, OnLimit
from penstock.engine.limits.records import Allowed, Decided, Granted, Requested
from tests.simulation.broken import Broken
from tests.simulation.limited.log import LimitStory

NAME, ONE = LimitName(LimitKind.RUNS, "a"), Allowed(1)
WAITER, FIRST, SECOND = "w", "f", "s"


def _story(*newcomers: str, waits: str | None = None) -> LimitStory:
    """`holder` holds; then somebody waits, and those come who replace others."""
    story = LimitStory(NAME)
    _ask(story, "holder", 1, OnLimit.QUEUE)
    _decide(story, 1, granted=(Granted("holder", "holder"),))
    if waits is not None:
        _ask(story, waits, 2, OnLimit.QUEUE)
    for seq, newcomer in enumerate(newcomers, 3):
        _ask(story, newcomer, seq, OnLimit.REPLACE)
    return story


def _ask(story: LimitStory, holder: str, seq: int, on_limit: OnLimit) -> None:
    story.record(Requested(name=NAME, holder=holder, run_id=holder, allowed=ONE, on_limit=on_limit), seq, float(seq))


def _decide(
    story: LimitStory,
    upto: int,
    granted: tuple[Granted, ...] = (),
    replaced: tuple[str, ...] = (),
    evicted: tuple[str, ...] = (),
) -> None:
    refused = tuple((holder, "replaced") for holder in replaced)
    seq, at = upto * 10, float(upto)
    decided = Decided(name=NAME, upto=upto, at=at, allowed=ONE, granted=granted, refused=refused, evicted=evicted)
    story.record(decided, seq, at)


def test_who_comes_alone_replaces_the_only_one_that_waits() -> None:
    story = _story(FIRST, waits=WAITER)
    _decide(story, 3, replaced=(WAITER,))
    assert story.open() == ({FIRST}, {"holder"})


def test_who_comes_alone_and_meets_nobody_replaces_the_holder() -> None:
    story = _story(FIRST)
    _decide(story, 3, evicted=("holder",))
    assert story.open() == ({FIRST}, {"holder"})


def test_of_two_that_come_together_one_replaces_the_other() -> None:
    story = _story(FIRST, SECOND)
    _decide(story, 4, replaced=(FIRST,), evicted=("holder",))
    assert story.open() == ({SECOND}, {"holder"})


@pytest.mark.parametrize(
    ("waits", "replaced", "evicted"),
    [
        (WAITER, (), ()),
        (WAITER, (), ("holder",)),
        (WAITER, (WAITER,), ("holder",)),
        (WAITER, (WAITER, FIRST), ()),
        (None, (), ()),
        (None, (FIRST,), ("holder",)),
    ],
)
def test_too_few_or_too_many_that_make_way_are_found(
    waits: str | None, replaced: tuple[str, ...], evicted: tuple[str, ...]
) -> None:
    with pytest.raises(Broken, match="had to make way"):
        _decide(_story(FIRST, waits=waits), 3, replaced=replaced, evicted=evicted)
