"""What must be so when everything has ended: nothing is left, and all records agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.broker import names, record_keys
from penstock.broker.records.owners import Claim
from penstock.broker.streams.dead_letters import HEADER
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.events import TimerFired, decode
from penstock.engine.run.state import Run, RunStatus, StepStatus, to_snapshot
from penstock.engine.run.timers import live_timers
from penstock.engine.times import rfc3339
from tests.simulation import archiving
from tests.simulation.broken import Broken
from tests.simulation.clock import PARTITIONS

if TYPE_CHECKING:
    from tests.simulation.world import World


def rest(world: World) -> dict[str, int]:
    shard = world.engine.shard
    if shard is None or len(shard.partitions) < PARTITIONS:
        return {"partitions that nobody has": 1}
    left = {
        "actors": len(shard.actors) + len(shard.packed),
        "unsaved runs": len(shard.snapshots),
        "timers": shard.timers.in_memory,
        "pending events": shard.backlog.events,
        "waits for events": shard.waits.in_memory,
    }
    left |= world.watch.limits.left()
    left["messages on their way"] = int(world.server.now < world.server.late_until)
    for name in _current_consumers(world):
        consumer = world.server.consumers.get(name)  # in the broker's memory: it may be about to be made anew
        left[f"unacknowledged in {name}"] = 1 if consumer is None else consumer.unacknowledged
    return {name: count for name, count in left.items() if count}


def astray(world: World) -> list[tuple[str, SetTimer]]:
    """Timers that open runs wait for and that nobody has: neither the owner in memory nor the broker. That may be so
    for a moment."""
    shard = world.engine.shard
    wanted = [(run.run_id, timer) for run in world.watch.open for timer in live_timers(run)]
    armed = {} if shard is None else shard.timers._armed
    return [
        (run_id, timer)
        for run_id, timer in wanted
        if not ((run_id, timer.timer) in armed and armed[run_id, timer.timer].command == timer)
        and not _is_scheduled(world, run_id, timer)
    ]


def _is_scheduled(world: World, run_id: str, timer: SetTimer) -> bool:
    kept = world.server.history.last(names.schedule_subject(run_id, timer.timer))
    if kept is None:
        return False
    fires = decode(kept.data)
    return (
        isinstance(fires, TimerFired)
        and fires.timestamp == rfc3339(timer.due)
        and fires.payload.attempt == timer.attempt
    )


def _current_consumers(world: World) -> list[str]:
    """Those of the owners. One of a former owner, made by a request that was on its way for long, stays until the next
    one comes."""
    engines = world.server.streams[names.bucket_stream(names.ENGINES)]
    claims = [
        engines.last(names.key_subject(names.ENGINES, record_keys.claim_key(number))) for number in range(PARTITIONS)
    ]
    return [msgspec.json.decode(claim.data, type=Claim).consumer for claim in claims if claim is not None]


def check_records(world: World) -> None:
    """The records agree with each other, and with what people were told."""
    world.operations.check()
    world.watch.families.check()
    world.strangers.check()
    archiving.check(world)
    snapshots = world.server.streams[names.bucket_stream(names.RUNS)]
    letters = _letters(world)
    for run_id, run in world.watch.runs.items():
        if run.removed:
            continue
        if world.watch.archives.is_put_away(run_id):
            continue
        kept = snapshots.last(names.key_subject(names.RUNS, run_id))
        if not _is_carried(world, run) and (kept is None or kept.data != to_snapshot(run)):
            raise Broken("neither its last snapshot nor its last event has its last state", run_id)
        for step_id in _failed(run) if run.status is RunStatus.FAILED else ():
            # Its run was failing already, by its timeout. The letter of the handler is enough: to replay it resumes the
            # run, and a step whose handler has not completed begins again itself.
            handled = (run_id, f"{step_id}.on_failure") in letters
            if (run_id, step_id) not in letters and not handled:
                raise Broken(f"the failed step {step_id} has no dead letter", run_id)


def _is_carried(world: World, run: Run) -> bool:
    """Whether the last event of its history is an end with its state: whoever prunes or archives runs looks no
    further."""
    last = world.server.streams[names.HISTORY].last(names.stored_subject(run.run_id))
    return world.watch.carried.get(run.run_id) == run and last is not None and last.seq == run.seq


def _failed(run: Run) -> Iterator[str]:
    """The executions that have failed for good; in place of a map the element with which it failed."""
    for step_id, step in run.steps.items():
        handler = run.steps.get(f"{step_id}.on_failure")
        if step.status is StepStatus.FAILED and (handler is None or handler.status is StepStatus.FAILED):
            failed = None if step.items is None else step.items.failed
            yield step_id if failed is None else f"{step_id}.{failed}"


def _letters(world: World) -> set[tuple[str, str]]:
    found = set()
    for message in world.server.streams[names.DEAD].messages.values():
        told = {name.decode(): value.decode() for name, value in HEADER.findall(message.own_headers)}
        if "Dead-Step" not in told:
            raise Broken(f"an event was dead-lettered: {told.get('Dead-Error')}", told.get("Dead-Run"))
        found.add((told["Dead-Run"], told["Dead-Step"]))
    return found
