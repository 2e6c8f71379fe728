"""The run index with many labelled runs: filled by the code that follows the log, asked at the reader that GET /runs
asks. No broker takes part, and the runs of a page are not read. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random

from penstock.actors.index.file import IndexFile, prepare
from penstock.actors.index.rows import Change
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.engine.run.events import WorkflowCompleted, WorkflowFailed, WorkflowStarted

from .environment import Setup
from .figures import percentile
from .samples import Sample, Workload

BATCH = 4000  # changes of one write, as of a busy log
BEGIN_US = 1_790_000_000_000_000
APART_US_MAX = 2_000_000
WORKFLOWS, TEAMS, CUSTOMERS = 10, 20, 10_000
FAILED, OPEN = 12, 50  # one run in so many
PAGE = 100
PAGES, COUNTS = 200, 20
BUCKET = timedelta(hours=1)


async def labels(setup: Setup) -> Sample:
    """Pages of runs by their labels, and numbers of runs, of an index of many runs with three labels each."""
    runs, chosen = setup.sizes.indexed, Random(2)
    with tempfile.TemporaryDirectory(dir=setup.directory) as directory:
        path = Path(directory) / "runs.sqlite"
        begin = time.perf_counter()
        _fill(path, runs)
        per_s = runs / (time.perf_counter() - begin)
        with closing(RunIndex(path)) as index:

            def page(**wanted: object) -> Callable[[], Awaitable[object]]:
                return lambda: index.find(Selection(**wanted), PAGE)

            half = Selection(labels=("env:prod",))
            rows = {
                "label-fill": per_s,
                **await _times("label-half", page(labels=("env:prod",)), PAGES),
                **await _times("label-many", lambda: page(labels=(_customer(chosen),))(), PAGES),
                **await _times("label-both", lambda: page(labels=(_customer(chosen), "env:prod"))(), PAGES),
                **await _times("label-text", lambda: page(text=_customer(chosen)[:-1])(), PAGES),
                **await _times("label-stats", lambda: index.stats(Selection(), BUCKET), COUNTS),
                **await _times("label-stats-half", lambda: index.stats(half, BUCKET), COUNTS),
            }
    return Sample(rows)


async def _times(row: str, ask: Callable[[], Awaitable[object]], count: int) -> Mapping[str, float]:
    """In ms, after a few that do not count."""
    times = []
    for _ in range(count + count // 10):
        begin = time.perf_counter()
        await ask()
        times.append(time.perf_counter() - begin)
    counted = sorted(times[-count:])
    return {f"{row}-p50": percentile(counted, 0.5) * 1000, f"{row}-p99": percentile(counted, 0.99) * 1000}


def _fill(path: Path, runs: int) -> None:
    prepare(path, "bench")
    changes = _changes(runs)
    with closing(IndexFile(path)) as file:
        while batch := list(islice(changes, BATCH)):
            file.write(batch, file.at)


def _changes(runs: int) -> Iterator[Change]:
    """Each run's start, and the end of most."""
    drawn, at = Random(1), BEGIN_US
    for number in range(runs):
        at += drawn.randrange(1, APART_US_MAX)
        run_id = f"{at // 1000:012x}{drawn.getrandbits(80):020x}"
        team, env = f"team:t{drawn.randrange(TEAMS)}", "env:prod" if number % 2 else "env:test"
        workflow = f"workflow-{drawn.randrange(WORKFLOWS)}"
        seq = 2 * number + 1
        yield Change(run_id, WorkflowStarted, seq, workflow, at, labels=(_customer(drawn), env, team))
        if number % OPEN:
            end = WorkflowCompleted if number % FAILED else WorkflowFailed
            yield Change(run_id, end, seq + 1, folded=seq)


def _customer(drawn: Random) -> str:
    return f"customer:c{drawn.randrange(CUSTOMERS)}"


INDEX_WORKLOADS: Mapping[str, Workload] = {"labels": Workload(labels, once=True)}
