"""What clients and workers do while a process dies: each scenario goes on with whatever answers, and ends when its runs
have ended.

A scenario gets a name of its own for its workflow, and returns what is worth comparing beside its runs. What breaks is
done again where that is safe; what comes of doing it again is not compared, only what is there in the end. Those of
triggers are in crash_triggers.py, those of the worker bridge in crash_bridge.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from signal import SIGTERM
from typing import Any, TypeAlias

import orjson

from penstock.actors.runs.loading import records
from penstock.broker import names, record_keys
from penstock.broker.store import Store
from penstock.engine.run.events import ApprovalRequested, StepStarted
from penstock.engine.run.execution.failure_runs import failure_run_id
from penstock.engine.run.state import RunStatus
from tests.support.crashing import World
from tests.support.waiting import until, until_true
from tests.support.world import ended

Scenario: TypeAlias = Callable[[World, str], Awaitable[object]]
Meanwhile: TypeAlias = Callable[[World, str], Awaitable[None]]
"""What happens to a run while it waits."""

SOON_S = 2.0  # more than what counts as at once, also when it comes to the service
ENDED_S_MAX = 30
UNANSWERED_S = 1  # after which a task that was given to the dead comes again, instead of 30
IN_PEACE = SIGTERM
SHARDS = ("shard-0", "shard-1")


def step(task: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": f"s{number}", "task": task, "depends_on": [f"s{number - 1}"] if number else [], **more}


async def registered(world: World, name: str, *steps: dict[str, Any], **more: Any) -> None:
    await world.ask("POST", "/workflows", json={"name": name, "steps": steps, **more})


async def begun(world: World, name: str, *steps: dict[str, Any], value: Any = 7) -> str:
    """Register the workflow and start a run of it."""
    await registered(world, name, *steps)
    return await started(world, name, value)


async def started(world: World, name: str, value: Any = 7, **more: Any) -> str:
    """Start a run, with a key: whatever breaks is asked for again."""
    request = {"workflow": name, "input": value, **more}
    answer = await world.ask("POST", "/runs", json=request, headers={"Idempotency-Key": name})
    return str(answer.json()["run_id"])


async def chain(world: World, name: str) -> None:
    """Three steps, the second of which needs a retry."""
    retry = {"max_attempts": 2, "strategy": "fixed", "initial_delay": "20ms"}
    run_id = await begun(world, name, step("crash.echo"), step("crash.flaky", 1, retry=retry), step("crash.echo", 2))
    await ended(world.store, run_id, ENDED_S_MAX)


async def child(world: World, name: str) -> None:
    """A step starts a child, of which a step needs a retry."""
    retry = {"max_attempts": 2, "strategy": "fixed", "initial_delay": "20ms"}
    await registered(world, f"{name}.child", step("crash.flaky", retry=retry), step("crash.echo", 1))
    parent = {"id": "s0", "type": "sub_workflow", "config": {"workflow": f"{name}.child"}}
    run_id = await begun(world, name, parent, step("crash.echo", 1))
    await ended(world.store, run_id, ENDED_S_MAX)


async def children(world: World, name: str) -> None:
    """A map has a child for each element."""
    await registered(world, f"{name}.child", step("crash.echo"))
    parent = {"id": "s0", "type": "map", "config": {"workflow": f"{name}.child"}}
    run_id = await begun(world, name, parent, step("crash.echo", 1), value=[1, 2, 3])
    await ended(world.store, run_id, ENDED_S_MAX)


async def planner(world: World, name: str) -> None:
    """A planner, whose worker returns its input as its plan, and a step after it."""
    plan = {"steps": [{"id": "x", "task": "crash.echo"}, {"id": "y", "task": "crash.echo", "depends_on": ["x"]}]}
    run_id = await begun(world, name, step("crash.echo", type="planner"), step("crash.echo", 1), value=plan)
    await ended(world.store, run_id, ENDED_S_MAX)


def awaited(meanwhile: Meanwhile | None = None) -> Scenario:
    """A run waits for its event, `meanwhile` something happens, then the event is sent, between two for others."""

    async def scenario(world: World, name: str) -> object:
        known_by = {"field": "id", "value": "${{ input }}"}
        wait = {"id": "w", "type": "wait_for_event", "config": {"event": name, "correlate": known_by, "timeout": "1h"}}
        run_id = await begun(world, name, wait, {**step("crash.echo"), "depends_on": ["w"]})
        await until(lambda: has_begun(world.store, run_id))
        if meanwhile is not None:
            await meanwhile(world, run_id)
        for number in (6, 7, 8):
            key = {"Idempotency-Key": f"{name}.{number}"}
            await world.ask("POST", f"/events/{name}", json={"id": number}, headers=key)
        return (await ended(world.store, run_id, ENDED_S_MAX)).steps["w"].output

    return scenario


async def wait_is_checkpointed(world: World, run_id: str) -> None:
    """Events are in the stream from before, so the shard writes down that this wait has seen them."""
    stored, number = world.store.event_waits, names.partition(run_id)

    async def written() -> bool:
        return (await stored.of_partition(number)).checkpoint is not None

    await until(written)


def timeout(meanwhile: Meanwhile | None = None) -> Scenario:
    """A step begins, `meanwhile` something happens, and its time is over; its second attempt succeeds."""

    async def scenario(world: World, name: str) -> None:
        retry = {"max_attempts": 1, "strategy": "fixed", "initial_delay": "1ms"}
        run_id = await begun(world, name, step("crash.hanging", timeout="300ms", retry=retry))
        if meanwhile is not None:
            await until(lambda: has_begun(world.store, run_id))
            await meanwhile(world, run_id)
        await ended(world.store, run_id, ENDED_S_MAX)

    return scenario


async def has_begun(store: Store, run_id: str) -> bool:
    return any(isinstance(record.event, StepStarted) for record in records(await store.history.read(run_id)))


async def pause(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.pausing", timeout="1m"), step("crash.echo", 1))
    await ended(world.store, run_id, ENDED_S_MAX)


async def loop(world: World, name: str) -> None:
    draft = step("crash.draft", type="agent_loop", config={"max_iterations": 5})
    run_id = await begun(world, name, draft, step("crash.echo", 1), value=0)
    await ended(world.store, run_id, ENDED_S_MAX)


async def failure(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.echo"), step("crash.fatal", 1))
    await ended(world.store, run_id, ENDED_S_MAX)
    await shown(world, name, RunStatus.FAILED)


async def failure_run(world: World, name: str) -> None:
    """A step and its handler fail, the run with them, and its workflow starts another one because of it."""
    handled = step("crash.fatal", on_failure={"task": "crash.fatal"})
    await registered(world, f"{name}.alarm", step("crash.echo"))
    await registered(world, name, handled, on_failure={"workflow": f"{name}.alarm"})
    run_id = await started(world, name, 7)
    await ended(world.store, run_id, ENDED_S_MAX)
    await ended(world.store, failure_run_id(run_id, 0), ENDED_S_MAX)


async def saga(world: World, name: str) -> None:
    """A run fails, and what it has done is undone: one step after a retry, one not at all."""
    retry = {"max_attempts": 1, "strategy": "fixed", "initial_delay": "20ms"}
    run_id = await begun(
        world,
        name,
        step("crash.echo", compensate={"task": "crash.flaky", "retry": retry}),
        step("crash.echo", 1, compensate={"task": "crash.fatal"}),
        step("crash.echo", 2, type="map", config={"items": [1, 2]}, compensate={"task": "crash.echo"}),
        step("crash.fatal", 3),
    )
    await ended(world.store, run_id, ENDED_S_MAX)


async def called_off(world: World, name: str) -> None:
    """A run is cancelled with compensation."""
    run_id = await begun(world, name, step("crash.echo", compensate={"task": "crash.echo"}), step("crash.hanging", 1))

    async def hangs() -> bool:
        return '"s1":{"status":"running"' in (await world.ask("GET", f"/runs/{run_id}")).text

    await until(hangs)
    await world.ask("POST", f"/runs/{run_id}/cancel", 409, json={"compensate": True})
    await ended(world.store, run_id, ENDED_S_MAX)


async def recovery(world: World, name: str) -> None:
    """A step fails, its handler completes, and the run goes on."""
    run_id = await begun(world, name, step("crash.fatal", on_failure={"task": "crash.echo"}), step("crash.echo", 1))
    await ended(world.store, run_id, ENDED_S_MAX)


async def replay(world: World, name: str) -> None:
    """A run that has failed goes on when its dead letter is replayed."""
    await failure(world, name)
    (run,) = (await world.ask("GET", "/runs", params={"workflow": name})).json()
    (dead_letter,) = (await world.ask("GET", "/dead-letters", params={"run": run["run_id"]})).json()
    await world.ask("POST", f"/dead-letters/{dead_letter['seq']}/replay", 404)
    await completed(world, name)


async def bulk_replay(world: World, name: str) -> None:
    """Asked for once: who asks again finds nothing that has failed."""
    await failure(world, name)
    await world.ask_once("POST", "/runs/retry", json={"workflow_id": name, "mode": "replay"})
    await completed(world, name)


async def completed(world: World, name: str) -> None:
    """Return when the one run of the workflow shows that."""
    await shown(world, name, RunStatus.COMPLETED)


async def shown(world: World, name: str, status: RunStatus) -> None:
    """Return when the list, which bulk operations select from, has the workflow's one run with this status."""

    async def is_shown() -> bool:
        return bool((await world.ask("GET", "/runs", params={"workflow": name, "status": status})).json())

    await until(is_shown)


async def rerun(world: World, name: str) -> None:
    """Asked for once: without a key it is not safe to ask for it again."""
    await failure(world, name)
    await world.ask_once("POST", "/runs/retry", json={"workflow_id": name, "mode": "rerun"})
    await all_ended(world, name, 2)


async def bulk(world: World, name: str) -> None:
    """Asked for once, as above."""
    await registered(world, name, step("crash.echo"))
    await world.ask_once("POST", "/runs/bulk", json={"workflow_id": name, "inputs": list(range(9))})
    await all_ended(world, name, 9)


async def keyed_rerun(world: World, name: str) -> None:
    """With a key: who asks again is told of the run that was started, or starts it."""
    await failure(world, name)
    request = {"workflow_id": name, "mode": "rerun"}
    answer = await world.ask("POST", "/runs/retry", json=request, headers={"Idempotency-Key": name})
    assert 1 == len(answer.json()["retried"]), answer.text
    await all_ended(world, name, 2)


async def keyed_bulk(world: World, name: str) -> None:
    """With a key: nothing is started twice, and everything is."""
    await registered(world, name, step("crash.echo"))
    request = {"workflow_id": name, "inputs": list(range(9))}
    answer = await world.ask("POST", "/runs/bulk", json=request, headers={"Idempotency-Key": name})
    assert 9 == len(set(answer.json()["run_ids"])), answer.text
    await all_ended(world, name, 9)


async def bulk_cancel(world: World, name: str) -> None:
    await registered(world, name, step("crash.nobody"))
    await world.ask("POST", "/runs/bulk", json={"workflow_id": name, "inputs": [1, 2, 3]})
    await world.ask("POST", "/runs/cancel", json={"workflow_id": name})
    await all_ended(world, name, 3)


async def cancel(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.nobody"))
    await world.ask("POST", f"/runs/{run_id}/cancel", json={"reason": "enough"})
    await ended(world.store, run_id, ENDED_S_MAX)


async def cancel_held(world: World, name: str) -> None:
    """A run is cancelled while a worker carries out its step, and the worker is notified."""
    run_id = await begun(world, name, step("crash.hanging"))
    await until(lambda: has_begun(world.store, run_id))
    await world.ask("POST", f"/runs/{run_id}/cancel", json={"reason": "enough"})
    await ended(world.store, run_id, ENDED_S_MAX)


async def scheduled(world: World, name: str) -> None:
    await registered(world, name, step("crash.echo"))
    run_at = datetime.now(UTC) + timedelta(seconds=SOON_S)
    run_id = await started(world, name, run_at=run_at.isoformat())
    await ended(world.store, run_id, ENDED_S_MAX)


async def unscheduled(world: World, name: str) -> object:
    await registered(world, name, step("crash.echo"))
    run_id = await started(world, name, run_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    await world.ask("DELETE", f"/runs/{run_id}/scheduled", 400)
    await ended(world.store, run_id, ENDED_S_MAX)
    return await schedules(world.store, run_id)


async def deleted(world: World, name: str) -> object:
    """A run waits while its workflow is deleted, and goes on with the definition that it has."""
    run_id = await begun(world, name, step("crash.signalled"))
    await world.ask("DELETE", f"/workflows/{name}", 404, params={"force": "true"})
    await world.ask("POST", f"/runs/{run_id}/signal/go", content=b"5")
    await ended(world.store, run_id, ENDED_S_MAX)
    return [
        (await world.ask("GET", path, 404)).status_code
        for path in (f"/workflows/{name}", f"/workflows/{name}/versions")
    ]


async def signal(world: World, name: str) -> None:
    run_id = await begun(world, name, step("crash.signalled"))
    await world.ask("POST", f"/runs/{run_id}/signal/go", content=b"5")
    await ended(world.store, run_id, ENDED_S_MAX)


async def malformed(world: World, name: str) -> None:
    """Somebody publishes to the run's history what is no event."""
    run_id = await begun(world, name, step("crash.echo"), step("crash.signalled", 1))
    await world.store.publisher.send(names.history_subject(run_id), b"what is this?")
    await world.ask("POST", f"/runs/{run_id}/signal/go", content=b"5")
    await ended(world.store, run_id, ENDED_S_MAX)

    async def dead_lettered() -> bool:
        return bool((await world.store.dead_letters.page(run_id)).dead_letters)

    await until(dead_lettered)


def approval(meanwhile: Meanwhile | None = None, **more: Any) -> Scenario:
    """A run waits for a decision, `meanwhile` something happens, then it is approved. With a `timeout` its end orders
    something, so it has a snapshot then."""

    async def scenario(world: World, name: str) -> object:
        told: set[str] = set()

        async def tell(msg: Any) -> None:
            told.add(orjson.loads(msg.data)["token"])

        await world.store.broker.subscribe(f"told.{name}", tell)
        await world.store.broker.flush()
        asked = {"id": "ok", "type": "approval", "config": {"subject": f"told.{name}"}}
        await registered(world, name, asked, {**step("crash.echo"), "depends_on": ["ok"]}, **more)
        run_id = await started(world, name)
        token = await until(lambda: token_of(world.store, run_id))
        await until_true(lambda: bool(told))
        if meanwhile is not None:
            await meanwhile(world, run_id)
        await world.ask("POST", f"/runs/{run_id}/approval/ok", 409, params={"action": "approve", "token": token})
        await ended(world.store, run_id, ENDED_S_MAX)
        await until(lambda: withdrawn(world.store, run_id))
        return told == {token}

    return scenario


async def token_of(store: Store, run_id: str) -> str | None:
    for record in records(await store.history.read(run_id)):
        if isinstance(record.event, ApprovalRequested) and await store.approval_tokens.get(
            record_keys.step_key(run_id, "ok")
        ):
            return record.event.payload.token
    return None


async def schedules(store: Store, run_id: str) -> int:
    """How many timers of the run the broker has."""
    return len(await store.reader.subject(names.HISTORY, names.schedule_subject(run_id, ">")))


async def withdrawn(store: Store, run_id: str) -> bool:
    return await schedules(store, run_id) == 0


async def timer_is_stored(world: World, run_id: str) -> None:
    async def stored() -> bool:
        return await schedules(world.store, run_id) > 0

    await until(stored)


async def shard_is_killed(world: World, run_id: str) -> None:
    """The first one, or the only one."""
    await until_true(lambda: SHARDS[0] in world.place.service.pids())
    world.place.service.kill(SHARDS[0])


async def shards_are_killed(world: World, run_id: str) -> None:
    await until_true(lambda: world.place.service.pids().keys() >= set(SHARDS))
    for name in SHARDS:
        if name in world.place.service.pids():  # else it has just died where it was to
            world.place.service.kill(name)


async def shard_stops_in_peace(world: World, run_id: str) -> None:
    """One that has something to hand over."""
    name, *_ = await until(lambda: in_charge(world))
    world.place.service.kill(name, IN_PEACE)


async def in_charge(world: World) -> list[str]:
    """The shards that own partitions."""
    view, pids = await world.store.owners.read(), world.place.service.pids()
    owners = {found.claim.owner for found in view.claims.values()}
    owning = {listed.member.pid for member_id, listed in view.members.items() if member_id in owners}
    return [name for name in SHARDS if pids.get(name) in owning]


async def all_ended(world: World, name: str, count: int) -> None:
    """Return when so many runs of the workflow have been started, and have ended."""

    async def there() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await world.ask("GET", "/runs", params={"workflow": name})).json()
        return runs if len(runs) >= count else []

    for run in await until(there):
        await ended(world.store, run["run_id"], ENDED_S_MAX)
