"""Removing runs that have ended: when it is asked for, and what must be so from then on. The run is not there any more,
nothing of it happens, and nothing is left of it; a request that resumes it and one that removes it never both
succeed."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.actors.maintenance import pruning
from penstock.broker import names
from penstock.broker.nats.headers import KV_OPERATION
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.events import Event, WorkflowRemoved, WorkflowResumed
from penstock.engine.run.state import Run
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.front import Said
    from tests.simulation.world import World

PRUNE = "prune"
OF_SEEDS, SEED = 4, 3  # one of so many seeds has some removed: those with this remainder
AT_ONCE_S = 0.05
BUCKETS = (names.RUNS, names.SIGNALS, names.CHECKPOINTS, names.APPROVAL_TOKENS, names.STICKY_BINDINGS)


def moments(seed: int, until_s: float) -> list[tuple[float, str, int]]:
    """When runs of this seed are removed, and a number that picks; some are resumed at the same time. Drawn apart, as
    what operators do."""
    if seed % OF_SEEDS != SEED:
        return []
    chance, found = Random(f"prunes {seed}"), list[tuple[float, str, int]]()
    for _ in range(chance.choice((1, 1, 2))):
        at, pick = chance.uniform(2.0, until_s), chance.randrange(1000)
        found.append((round(at, 3), PRUNE, pick))
        if pick % 3:
            other = "replay" if pick % 3 == 1 else "replay many"
            found.append((round(at + chance.uniform(-AT_ONCE_S, AT_ONCE_S), 3), other, pick))
    return found


def fits(run: Run) -> bool:
    return run.ended and not run.removed


def wanted(store: Store, index: Any, run_id: str, run_ids: Sequence[str], pick: int) -> Awaitable[Any]:
    """One run, or all, for every other number."""
    return pruning.prune(store, index, run_ids if pick % 2 else [run_id])


def needed(runs: dict[str, Run], run_ids: Sequence[str]) -> dict[str, str]:
    """What the run index says: which of them have children or reruns that have not ended."""
    others = [
        (first, f"run {other.run_id}, is {other.status}")
        for other in runs.values()
        if not other.ended
        for first in (other.rerun_of, parent_run_id(other.parent))
    ]
    return {first: text for first, text in others if first in run_ids}


def watch(runs: dict[str, Run], before: Run | None, run: Run | None, event: Event) -> None:
    """Told of each event, also of one that changes nothing. Raises Broken."""
    if before is not None and before.removed:
        if run is not before:
            raise Broken(f"{event} has changed it, and it was removed", before.run_id)
        if isinstance(event, WorkflowResumed):
            raise Broken("it was resumed, and had been removed", before.run_id)
    elif isinstance(event, WorkflowRemoved):
        if run is None or not run.removed:
            raise Broken("its removal was stored, and it was not to be removed any more", event.run_id)
        _check_unneeded(runs, run)


def _check_unneeded(runs: dict[str, Run], run: Run) -> None:
    """A run that was resumed since the request looked may need it; one that has never ended needs it for sure."""
    parent = runs.get(parent_run_id(run.parent) or "")
    if parent is not None and not parent.ended and not parent.resumes:
        raise Broken("it was removed, and its parent has not ended", run.run_id)


def check(world: World, said: Sequence[Said]) -> None:
    """At the end. Raises Broken."""
    runs = world.watch.runs
    for one in said:
        if isinstance(one.answer, pruning.PrunedRuns):
            for run_id in one.answer.pruned:
                if not runs[run_id].removed:
                    raise Broken("it was told as removed, and is there", run_id)
    for run_id, run in runs.items():
        if run.removed and (left := next(_left(world, run_id), None)):
            raise Broken(f"it was removed, and {left} is left", run_id)


def _left(world: World, run_id: str) -> Iterator[str]:
    streams = world.server.streams
    for subject in (one.subject for one in streams[names.DEAD].messages.values()):
        if run_id in subject.split("."):
            yield subject
    for bucket in BUCKETS:
        stream = streams[names.bucket_stream(bucket)]
        for subject in stream.subjects:
            # The mark of a deletion may come from a front end that died, when all else is gone.
            if run_id in subject.split(".") and (last := stream.last(subject)) and KV_OPERATION not in last.headers:
                yield subject
    events = world.server.history.matching(names.stored_subject(run_id))
    if len(events) != 1 or b'"workflow.removed"' not in events[0].data:
        yield f"a history of {len(events)} events"
