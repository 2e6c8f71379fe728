"""Scenarios of crash tests: reruns from a step, steps that somebody tries again or completes by hand, and pauses."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.run.state import RunStatus
from penstock.engine.validation import parse
from tests.e2e.crash_scenarios import ENDED_S_MAX, all_ended, begun, completed, step
from tests.support.crashing import World
from tests.support.waiting import until
from tests.support.world import ended


async def rerun_from(world: World, name: str) -> None:
    """With a key, as without one it is not safe to ask again. The run takes over a step and a map."""
    elements = {"items": [1, 2, 3]}
    steps = (step("crash.echo"), step("crash.echo", 1, type="map", config=elements), step("crash.fatal", 2))
    run_id = await begun(world, name, *steps)
    await ended(world.store, run_id, ENDED_S_MAX)
    wish = {"from": "s2", "outputs": {"s0": "given"}, "input": "again"}
    answer = await world.ask("POST", f"/runs/{run_id}/rerun", json=wish, headers={"Idempotency-Key": name})
    assert run_id == answer.json()["rerun_of"]
    await all_ended(world, name, 2)


async def imported(world: World, name: str) -> None:
    """Who imports again is told that the run exists, if its mark was stored. The run is of another workflow, as the log
    does not have its events."""
    run_id = await begun(world, name, step("crash.echo"))
    await completed(world, name)
    document = (await world.ask("GET", f"/runs/{run_id}/export")).json()
    copy = uuid5(NAMESPACE_URL, name).hex
    definition = {**document["definition"], "name": f"{name}-elsewhere"}
    body = to_json(parse({key: value for key, value in definition.items() if key != "v"}))
    events = [{**event, "run_id": copy} for event in document["events"]]
    events[0]["payload"] |= {"workflow": definition["name"], "digest": digest(body)}
    document = {"run_id": copy, "definition": definition, "events": events}
    await world.ask("POST", "/runs/import", 409, json=document)
    assert 409 == (await world.ask("POST", "/runs/import", 409, json=document)).status_code
    shown = (await world.ask("GET", f"/runs/{copy}")).json()
    assert ("completed", True) == (shown["status"], shown["imported"])
    assert copy not in [one.get("run_id") for one in (await world.ask("GET", "/dead-letters")).json()]


async def retried_now(world: World, name: str) -> None:
    """Who asks again is told that the step does not wait any more."""
    run_id = await begun(world, name, step("crash.flaky", retry={"max_attempts": 1, "initial_delay": "1h"}))

    async def waits() -> bool:
        shown = (await world.ask("GET", f"/runs/{run_id}")).json()["steps"]["s0"]
        return shown["status"] == "queued" and "error" in shown

    await until(waits)
    await world.ask("POST", f"/runs/{run_id}/steps/s0/retry", 409)
    await completed(world, name)


async def by_hand(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.nobody"), step("crash.echo", 1))
    await world.ask("POST", f"/runs/{run_id}/steps/s0/skip", 409, json={"output": 1})
    await completed(world, name)


async def by_hand_after_failure(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.fatal"), step("crash.echo", 1))
    assert RunStatus.FAILED is (await ended(world.store, run_id, ENDED_S_MAX)).status
    await world.ask("POST", f"/runs/{run_id}/steps/s0/skip", 409, json={"output": 1})
    await completed(world, name)


async def paused(world: World, name: str) -> None:
    """The queued task is withdrawn, and put back."""
    run_id = await begun(world, name, step("crash.nobody"), step("crash.echo", 1))
    await world.ask("POST", f"/runs/{run_id}/pause")
    await until(lambda: _is_paused(world, run_id, True))
    await world.ask("POST", f"/runs/{run_id}/resume")
    await until(lambda: _is_paused(world, run_id, False))
    await world.ask("POST", f"/runs/{run_id}/steps/s0/skip", 409, json={"output": 1})
    await completed(world, name)


async def paused_in_bulk(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.nobody"))
    await world.ask("POST", "/runs/pause", json={"workflow_id": name, "status": "running"})
    await until(lambda: _is_paused(world, run_id, True))
    await world.ask("POST", "/runs/resume", json={"workflow_id": name, "status": "running"})
    await until(lambda: _is_paused(world, run_id, False))
    await world.ask("POST", f"/runs/{run_id}/cancel")
    await ended(world.store, run_id, ENDED_S_MAX)


async def pruned(world: World, name: str) -> None:
    """What remains is a run that is started after it."""
    gone = await begun(world, name, step("crash.echo"))
    await ended(world.store, gone, ENDED_S_MAX)

    async def is_removed() -> bool:
        await world.ask("POST", "/runs/prune", json={"workflow_id": name, "status": "completed"})
        events = await world.store.history.read(gone)
        return 1 == len(events) and await world.store.runs.get(gone) is None

    await until(is_removed, ENDED_S_MAX)
    await world.ask("GET", f"/runs/{gone}", 404)
    successor = {"Idempotency-Key": f"{name}.successor"}
    await world.ask("POST", "/runs", json={"workflow": name, "input": 7}, headers=successor)
    await completed(world, name)


async def _is_paused(world: World, run_id: str, wanted: bool) -> bool:
    run = (await world.ask("GET", f"/runs/{run_id}")).json()
    return ("paused_at" in run) is wanted
