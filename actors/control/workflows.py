"""The verb that deletes a workflow. Runs keep their definitions, which are stored by digest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.broker.store import Store
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict
from penstock.engine.run.state import RUN_ENDED, RunStatus

NAMED_MAX = 5  # of what stands in the way
OPEN = frozenset[str](RunStatus) - RUN_ENDED


async def check_unneeded(store: Store, index: RunIndex, name: str) -> None:
    """Raises Conflict that names the triggers of the workflow and its runs that have not ended; Unavailable."""
    kept = [one for one in await store.triggers.all() if not one.deleted and one.trigger.workflow == name]
    if problems := [*_of_triggers(name, kept), *await _of_runs(index, name)]:
        way_out = "delete the triggers and cancel the runs, or use force: the runs keep their definition, and"
        raise Conflict("\n".join([*problems, f"{way_out} what comes to the triggers becomes dead letters"]))


def _of_triggers(name: str, kept: Sequence[StoredTrigger]) -> Iterator[str]:
    if kept:
        noun = "trigger" if len(kept) == 1 else "triggers"
        shown = _shown([quoted(one.trigger.name) for one in kept], len(kept))
        yield f"workflow {quoted(name)} is needed by {len(kept)} {noun}: {shown}"


async def _of_runs(index: RunIndex, name: str) -> list[str]:
    wanted = Selection(workflow=name, statuses=OPEN, imported=False)
    count = await index.count_matching(wanted)
    if not count:
        return []
    noun = "run that has" if count == 1 else "runs that have"
    newest = (await index.find(wanted, NAMED_MAX)).run_ids
    return [f"workflow {quoted(name)} is needed by {count} {noun} not ended: {_shown(newest, count)}"]


def _shown(names: Sequence[str], total: int) -> str:
    """The first of the names, and how many more there are."""
    shown = names[:NAMED_MAX]
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
