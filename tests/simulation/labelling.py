"""Labels of runs: which ones are given when a run is started, and that each run has what it was given, in its state, in
its last snapshot and in the row of the run index. Those that templates give to other runs are told by retold/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.actors.index.rows import label_texts
from penstock.broker import names
from penstock.engine.run.events import WorkflowScheduled, WorkflowStarted, decode
from penstock.engine.run.state import Run, from_snapshot
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.world import World

Labels = Mapping[str, str] | None
SOME, OF = 2, 5  # a start has labels if its number gives such a remainder


def given(pick: int, number: int = 0) -> dict[str, str] | None:
    """The labels of a start; `number` is that of a run of a bulk, of which some have none."""
    if pick % OF >= SOME or (pick + number) % 4 == 3:
        return None
    return {"team": f"t{pick % 7}", "number": str(number), "cheese": "käse: ${{ run.id }}"}


def renewed(pick: int) -> dict[str, str] | None:
    """Those of a rerun; None: as before."""
    return {"again": str(pick)} if pick % OF == SOME else None


class Given:
    """Owned by the front: what was asked for, whatever became of it."""

    def __init__(self) -> None:
        self._starts: dict[str, list[Labels]] = {}
        self._reruns: dict[str, list[Labels]] = {}

    def start(self, marker: str, labels: Sequence[Labels]) -> None:
        """The runs of this marker, in any order."""
        self._starts[marker] = list(labels)

    def rerun(self, first: str, labels: Labels) -> None:
        self._reruns.setdefault(first, []).append(labels)

    def check(self, world: World, marked: Mapping[str, Sequence[str]]) -> None:
        """At the end; `marked` are the runs of each marker. Raises Broken."""
        runs = world.watch.runs
        for marker, wanted in self._starts.items():
            found = marked.get(marker, ())
            has = [runs[run_id].labels for run_id in found]
            if found and _sorted(has) != _sorted(wanted):
                raise Broken(f"labels: {wanted} were given, and the runs have {has}", found[0])
        for run in runs.values():
            if run.rerun_of is not None:
                before = [runs[run.rerun_of].labels, *self._reruns.get(run.rerun_of, ())]
                if _sorted([run.labels])[0] not in _sorted(before):
                    raise Broken(f"labels: it repeats {run.rerun_of}, and has {run.labels}, not {before}", run.run_id)
            if run.labels and not run.removed:
                _check_shown(world, run)


def _check_shown(world: World, run: Run) -> None:
    """By its snapshot and by its row."""
    kept = world.server.streams[names.bucket_stream(names.RUNS)].last(names.key_subject(names.RUNS, run.run_id))
    first = decode(world.watch.archives.told[run.run_id][0].data)
    assert isinstance(first, WorkflowStarted | WorkflowScheduled), "the first event of a run"
    row = label_texts(first.payload.labels, None)
    carried = world.watch.carried.get(run.run_id)
    put_away = world.watch.archives.is_put_away(run.run_id)
    if carried is None and not put_away and (kept is None or from_snapshot(kept.data).labels != run.labels):
        raise Broken(f"labels: its snapshot does not show {run.labels}", run.run_id)
    if sorted(row) != sorted(f"{key}:{value}" for key, value in (run.labels or {}).items()):
        raise Broken(f"labels: its row would show {row}, not {run.labels}", run.run_id)


def _sorted(found: Sequence[Labels]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((labels or {}).items()) for labels in found)
