"""Why a run waits for a limit: each reason produced by a real shard, and taken from its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.diagnosis.explanation import explanation
from penstock.actors.diagnosis.several import RecentReasons
from penstock.actors.limits import configuring
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.access.scopes import EVERYBODY, Caller
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from penstock.engine.waiting.reasons import Reason, WaitingReason
from tests.support.limits import held
from tests.support.waiting import until
from tests.support.world import chain, register


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def no_problem() -> str:
    return ""


async def why(
    store: Store, run_id: str, fits: Callable[[WaitingReason], bool], caller: Caller = EVERYBODY
) -> WaitingReason:
    """The first reason that fits, as soon as there is one."""

    async def look() -> WaitingReason | None:
        _, reasons = await explanation(store, run_id, no_problem, caller=caller)
        return next((one for one in reasons if fits(one)), None)

    return await until(look)


def of(reason: Reason) -> Callable[[WaitingReason], bool]:
    return lambda one: one.reason is reason and "place" in one.details


async def started(store: Store, workflow: Any, *inputs: bytes) -> list[str]:
    definition, digest = await register(store, workflow)
    return [await run_operations.start(store, definition, digest, Raw(one)) for one in inputs]


async def test_a_run_that_waits_for_another_names_it(store: Store, shard: Shard) -> None:
    workflow = {**chain("one", 1), "concurrency": [{"limit": 1}]}
    async with held(store, "one") as work:
        (first,) = await started(store, workflow, b"1")
        await work.begun(first)
        (second,) = await started(store, workflow, b"2")
        assert 1 == (await why(store, second, of(Reason.CONCURRENCY))).details["place"]
        (third,) = await started(store, workflow, b"3")
        found = await why(store, third, lambda one: one.details.get("place") == 2)
        assert (Reason.CONCURRENCY, None, False) == (found.reason, found.step_id, found.wants_somebody)
        assert {"scope": "one", "limit": 1, "holders": 1, "place": 2, "held_by": first} == found.details
        assert f'the run waits for limit "one" (1 run at a time): 1 goes on, the oldest of them is of run {first}' in (
            found.text
        )
        assert "place 2 of 2 that wait; `penstock limit show one --kind runs` has them all" in found.text
        work.go.set()


async def test_a_step_of_a_key_names_the_key_and_who_has_it(store: Store, shard: Shard) -> None:
    workflow = chain("keyed", 1, concurrency=[{"limit": 1, "key": "input.tenant"}])
    async with held(store, "keyed") as work:
        (first,) = await started(store, workflow, b'{"tenant":"acme"}')
        await work.begun(first)
        (second,) = await started(store, workflow, b'{"tenant":"acme"}')
        found = await why(store, second, of(Reason.CONCURRENCY))
        assert found.step_id is not None
        assert ("acme", first, 1) == tuple(found.details[name] for name in ("key", "held_by", "place"))
        assert '(1 execution at a time, key "acme")' in found.text
        work.go.set()


@pytest.mark.parametrize("key", ["", "input"], ids=["without a key", "with a key"])
async def test_a_run_of_a_workflow_that_the_caller_does_not_see_is_not_named(
    store: Store, shard: Shard, key: str
) -> None:
    scope = f"shared-{bool(key)}"
    limits = {"concurrency": [{"limit": 1, "scope": scope, **({"key": key} if key else {})}]}
    theirs, ours = f"theirs-{bool(key)}", f"ours-{bool(key)}"
    async with held(store, theirs) as work:
        (first,) = await started(store, {**chain(theirs, 1), **limits}, b"1")
        await work.begun(first)
        (second,) = await started(store, {**chain(ours, 1), **limits}, b"1")
        for pattern in (None, "*"):
            found = await why(store, second, of(Reason.CONCURRENCY), Caller("ann", workflows=pattern))
            assert first == found.details["held_by"]
        found = await why(store, second, of(Reason.CONCURRENCY), Caller("ann", workflows="ours-*"))
        assert first not in f"{found.text}{found.details}"
        assert (1, 1) == (found.details["holders"], found.details["place"])
        assert "1 goes on; place 1 of 1 that wait" in found.text
        reasons = RecentReasons()
        run = (await load(store, second)).run
        assert run is not None
        for caller, is_named in ((EVERYBODY, True), (Caller("ann", workflows="ours-*"), False), (EVERYBODY, True)):
            said = (await reasons.of(store, [run], no_problem, 30.0, caller))[second]
            assert said is not None
            assert is_named == (first in said.text)
        work.go.set()


async def test_what_waits_for_a_token_knows_when_it_comes(store: Store, shard: Shard) -> None:
    workflow = chain("rated", 1, rate_limit=[{"limit": 1, "per": "1h"}])
    async with held(store, "rated") as work:
        (first,) = await started(store, workflow, b"1")
        await work.begun(first)
        (second,) = await started(store, workflow, b"2")
        found = await why(store, second, of(Reason.RATE_LIMIT))
        assert found.until is not None
        assert f"its next token comes at {found.until}; place 1 of 1 that wait" in found.text
        assert "holders" not in found.details
        work.go.set()


async def test_a_limit_of_nothing_says_so_and_how_to_change_it(store: Store, shard: Shard) -> None:
    (run_id,) = await started(store, {**chain("none", 1), "concurrency": [{"limit": 0}]}, b"1")
    found = await why(store, run_id, of(Reason.CONCURRENCY))
    assert "it lets nothing begin" in found.text
    assert found.text.endswith("`penstock limit set none N --kind runs` lets it begin")


async def test_an_override_is_named_with_its_way_back(store: Store, shard: Shard) -> None:
    place = (LimitKind.RUNS, "stopped")
    await configuring.override(store, place, None, Allowed(0), "ann")
    (run_id,) = await started(store, {**chain("stopped", 1), "concurrency": [{"limit": 5}]}, b"1")
    found = await why(store, run_id, of(Reason.CONCURRENCY))
    assert '"stopped" (0 runs at a time, overridden): it lets nothing begin' in found.text
    assert found.text.endswith("`penstock limit reset stopped --kind runs` lets what is registered count again")
