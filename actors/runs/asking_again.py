"""What runs hold and wait for is asked for again, when the log of limits is not there any more.

It was deleted by hand. Who held a slot asks first, so that nobody else gets it; whoever is granted a slot that it
holds already ignores that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterable, Sequence

from msgspec import MsgspecError

from penstock.actors.runs.effects import Effects
from penstock.actors.runs.loading import load
from penstock.actors.runs.shared.lease import ShardLease
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.engine.limits.names import LimitKind
from penstock.engine.run.commands import Command, ReleaseSlot, RequestSlot
from penstock.engine.run.slots.holders import RUN, holder_of, holds, slots_of
from penstock.engine.run.slots.holding import UNWANTED
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow

SLOTS = b'"slots":'


log = get_logger()


async def ask_again(
    store: Store, effects: Effects, lease: ShardLease, owned: Container[int], also: Iterable[str], since: float
) -> None:
    """Ask for the slots of all runs in these partitions again, of those with a snapshot and of the runs `also`. `since`
    is the time now (monotonic). Raises Unavailable: it may be repeated."""
    run_ids = {*also, *[run_id async for run_id in _with_slots(store) if names.partition(run_id) in owned]}
    waiting: list[str] = []
    for run_id in sorted(run_ids):
        if (found := await _loaded(store, run_id)) is None:
            continue
        held, awaited = requests_again(*found)
        await _ask(store, effects, lease, found, held, since)
        waiting += [run_id] if awaited else []
    for run_id in waiting:
        # It may have ended meanwhile: a request then may displace others for nobody.
        if (found := await _loaded(store, run_id)) is not None:
            await _ask(store, effects, lease, found, requests_again(*found)[1], since)
    log.warning("limits_asked_again", runs=len(run_ids))


async def _ask(
    store: Store,
    effects: Effects,
    lease: ShardLease,
    found: tuple[Workflow, Run],
    wanted: Sequence[RequestSlot],
    since: float,
) -> None:
    """Ask for these slots, and give back those that the run has given up by the time at which that is stored: what it
    gave back before it was asked for would be held by nobody."""
    if not wanted:
        return
    workflow, run = found
    lease.check()
    await effects.perform(workflow, run, [*wanted], since)
    now = await _loaded(store, run.run_id)
    late: list[Command] = [
        ReleaseSlot(one.holder, UNWANTED, None, one.number, one.step_id, one.attempt, one.iteration)
        for one in wanted
        if now is None or not holds(now[1], one.holder)
    ]
    if late:
        lease.check()
        await effects.perform(workflow, run, late, since)


async def _loaded(store: Store, run_id: str) -> tuple[Workflow, Run] | None:
    """None: it has no slots and waits for none. Raises Unavailable."""
    try:
        found = await load(store, run_id)
    except MsgspecError as error:
        log.error("slots_not_asked_again", run_id=run_id, error=str(error))
        return None
    return None if found.run is None or found.workflow is None or not found.run.slots else (found.workflow, found.run)


async def _with_slots(store: Store) -> AsyncIterator[str]:
    """The runs whose snapshot may have slots."""
    prefix = names.key_subject(names.RUNS, "")
    async for page in store.reader.pages(names.bucket_stream(names.RUNS), prefix + ">"):
        for one in page:
            if SLOTS in one.data:
                yield one.subject[len(prefix) :]


def requests_again(workflow: Workflow, run: Run) -> tuple[list[RequestSlot], list[RequestSlot]]:
    """Requests for what the run has, and for what it waits for. Tokens of rates are spent, and an ancestor asks itself
    for what it holds."""
    held, awaited = list[RequestSlot](), list[RequestSlot]()
    for owner, slot in run.slots.items():
        wanted = slots_of(workflow, owner)
        if wanted is None:
            continue
        for number in range(min(slot.number + 1, len(wanted.limits))):
            granted = slot.granted[number] if number < slot.number else None
            if granted is not None and (granted.inherited or granted.kind == LimitKind.RATE):
                continue
            holder, step_id = holder_of(run, owner, slot), None if owner == RUN else owner
            command = RequestSlot(holder, number, 0.0, step_id, slot.attempt, slot.iteration)
            (awaited if granted is None else held).append(command)
    return held, awaited
