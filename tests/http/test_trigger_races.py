"""Triggers that are made while their workflow is deleted, or while another trigger takes their route: whoever comes
second is refused, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import triggers, workflows
from penstock.actors.triggers import routes
from penstock.actors.triggers.reconcile import reconcile
from penstock.broker.store import Store
from penstock.broker.triggers.triggers import StoredTrigger, TriggerEntry
from penstock.engine.errors import Conflict, Invalid, NotFound
from penstock.engine.trigger.trigger import parse
from tests.support.world import chain, register

Meanwhile = Callable[[], Awaitable[object]]


def http_trigger(name: str, workflow: str, path: str) -> dict[str, Any]:
    return {"name": name, "workflow": workflow, "http": {"path": path, "auth": "none"}}


def event_trigger(name: str, workflow: str, event: str) -> dict[str, Any]:
    return {"name": name, "workflow": workflow, "event": {"subject": f"event.{event}"}}


async def put_while(
    store: Store, document: dict[str, Any], *, before: Meanwhile | None = None, after: Meanwhile | None = None
) -> None:
    """Put a trigger; other things happen right before, or right after its record is written for the first time."""
    write, happens = store.triggers.write, [before, after]

    async def written(found: TriggerEntry, kept: StoredTrigger) -> TriggerEntry:
        first, then = happens
        happens[:] = None, None
        if first is not None:
            await first()
        entry = await write(found, kept)
        if then is not None:
            await then()
        return entry

    with patch.object(store.triggers, "write", written):
        await triggers.put(store, document)


async def is_gone(store: Store, name: str) -> bool:
    await reconcile(store, name)
    return (await store.triggers.find(name)).kept is None


async def test_a_trigger_that_is_made_after_the_check_keeps_its_workflow(
    http: ASGIConductor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(store, chain("late.check", 1))
    check, checks = workflows.check_unneeded, list[str]()

    async def checked(*which: Any) -> None:
        await check(*which)
        checks.append("passed")
        await triggers.put(store, event_trigger("late.check", "late.check", "late.check"))

    monkeypatch.setattr(workflows, "check_unneeded", checked)
    refused = await http.simulate_delete("/workflows/late.check")

    assert (409, ["passed"]) == (refused.status_code, checks)
    assert refused.text.startswith('workflow "late.check" is needed by 1 trigger: "late.check"')
    assert "late.check" == (await store.definitions.latest("late.check"))[0].name
    assert 200 == (await http.simulate_delete("/workflows/late.check?force=true")).status_code
    await triggers.delete(store, "late.check")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_trigger_whose_workflow_is_deleted_meanwhile_is_refused(store: Store, when: str) -> None:
    name = f"meanwhile.{when}"
    await register(store, chain(name, 1))
    document = http_trigger(name, name, f"meanwhile/{when}")
    with pytest.raises(Invalid, match=f'workflow "{name}" is not registered'):
        await put_while(store, document, **{when: lambda: store.definitions.delete(name)})  # type: ignore[arg-type]

    with pytest.raises(NotFound):
        await triggers.get(store, name)
    assert await is_gone(store, name)
    assert (await store.triggers.route(f"POST meanwhile/{when}"))[0] is None


@pytest.mark.parametrize("same_source", [True, False])
async def test_a_replacement_that_is_refused_leaves_the_former_trigger(store: Store, same_source: bool) -> None:
    former, other = f"former.{same_source}", f"other.{same_source}"
    await register(store, chain(former, 1))
    await register(store, chain(other, 1))
    before = await triggers.put(store, event_trigger(former, former, "one"))
    document = event_trigger(former, other, "one" if same_source else "two")
    with pytest.raises(Invalid, match="is not registered"):
        await put_while(store, document, after=lambda: store.definitions.delete(other))

    kept = await triggers.get(store, former)
    assert (before.trigger, before.created_at) == (kept.trigger, kept.created_at)
    assert same_source == (before.generation == kept.generation)
    assert kept.active
    await triggers.delete(store, former)
    assert await is_gone(store, former)


async def test_of_two_triggers_for_one_route_the_second_is_not_there(store: Store, definitions: None) -> None:
    async def rival() -> None:
        await triggers.put(store, http_trigger("rival", "one", "raced"))

    with pytest.raises(Conflict, match='the route POST raced is that of trigger "rival"'):
        await put_while(store, http_trigger("slow", "one", "raced"), before=rival)

    assert await is_gone(store, "slow")
    assert (await store.triggers.route("POST raced"))[0] == "rival"
    await triggers.delete(store, "rival")
    assert (await store.triggers.route("POST raced"))[0] is None


async def test_a_trigger_that_could_not_be_written_leaves_no_route(store: Store) -> None:
    """Another process has given it another route and workflow, and then its workflow is deleted."""
    await register(store, chain("unwritten", 1))
    await register(store, chain("written", 1))

    async def overtaken() -> None:
        await triggers.put(store, http_trigger("overtaken", "written", "written"))
        await store.definitions.delete("unwritten")

    with pytest.raises(Invalid, match='workflow "unwritten" is not registered'):
        await put_while(store, http_trigger("overtaken", "unwritten", "unwritten"), before=overtaken)

    assert (await store.triggers.route("POST unwritten"))[0] is None
    found = await routes.trigger_of(store, "POST written")
    assert found is not None
    assert "written" == found.workflow
    await triggers.delete(store, "overtaken")


async def test_a_trigger_that_is_made_again_while_it_is_deleted_keeps_its_route(
    store: Store, definitions: None
) -> None:
    document = http_trigger("again", "one", "again")
    await triggers.put(store, document)
    remove = store.triggers.remove_route

    async def removed(route: str, revision: int) -> None:
        await triggers.put(store, document)
        await remove(route, revision)

    with patch.object(store.triggers, "remove_route", removed):
        await triggers.delete(store, "again")

    found = await routes.trigger_of(store, "POST again")
    assert found == parse(document)
    await triggers.delete(store, "again")
    assert (await store.triggers.route("POST again"))[0] is None
