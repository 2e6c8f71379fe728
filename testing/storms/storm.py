"""`storm`: a workflow runs under many seeds, and whatever goes wrong in production goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from penstock.engine.errors import Invalid
from penstock.testing.memory.catalog import Definition
from penstock.testing.run import TestRun
from penstock.testing.service import TestService
from penstock.testing.storms.faults import OF_TASKS, FaultKind
from penstock.testing.storms.least import least
from penstock.testing.storms.weather import Passed, StormCase, calm, said, through

USUAL_FAULTS = (*OF_TASKS, FaultKind.PAUSE)


class StormReport(Struct, frozen=True):
    """What came of a storm that broke nothing: the number of seeds, how many runs ended in which status, and how often
    each fault happened."""

    seeds: int
    statuses: Counter[str]
    faults: Counter[str]


def storm(
    workflow: Definition,
    input: Any = None,
    *,
    seeds: int | Iterable[int] = 1000,
    check: Callable[[TestRun], object] | None = None,
    before: Callable[[], object] | None = None,
    drive: Callable[[TestService, TestRun], object] | None = None,
    tasks: Mapping[str, Callable[..., Any]] | None = None,
    http: Callable[..., Any] | None = None,
    others: Collection[Definition] = (),
    faults: Collection[str] = USUAL_FAULTS,
    same_output: bool = True,
) -> StormReport:
    """Run a workflow once for each seed, with up to five faults each, and check what must hold.

    Attempts fail, workers die with a task before or after they have called its function, outcomes come late, tasks are
    carried out twice, runs are paused, people decide late, against it or not at all: `faults` names them (`fail`,
    `lose`, `lose_after_call`, `late`, `twice`, `pause`; `cancel` only if it is named). How long each task takes, and so
    the order of what runs side by side, is drawn anew. `seeds` is how many, or which ones.

    Each run must end; one that completes must have the output that it has without faults, unless `same_output` is
    False; and `check`, which is called with the ended run, must raise nothing. `before` is called before each run, to
    clear what functions have kept. `drive` is called with the service and the run after its start, to send signals and
    events (`service.after("1h", ...)`). `tasks` and `http` are as for TestService, `others` are workflows to register.

    Raises AssertionError for the first seed that breaks it, with the fewest of its faults that do so, and the history;
    also for a run that is wrong without any. Raises Invalid for an unknown fault.
    """
    if wrong := sorted(set(faults) - set(FaultKind)):
        raise Invalid(f"{', '.join(wrong)}: no such fault; there are {', '.join(FaultKind)}")
    case = StormCase(
        workflow=workflow,
        input=input,
        others=tuple(others),
        tasks=tasks,
        http=http,
        kinds=frozenset(FaultKind(one) for one in faults),
        before=before,
        drive=drive,
        check=check,
        same_output=same_output,
    )
    usual = calm(case)
    statuses, happened = Counter[str](), Counter[str]()
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        passed = through(case, seed, usual)
        if passed.error is not None:
            found = least(case, passed, usual)
            raise AssertionError(_told(found)) from found.error
        statuses[passed.status] += 1
        happened.update(fault.kind.value for fault in passed.faults)
    return StormReport(statuses.total(), statuses, happened)


def _told(found: Passed) -> str:
    assert found.error is not None
    faults = "".join(f"\n  {fault}" for fault in found.faults) or "\n  no fault, only the time that tasks took"
    return (
        f"seed {found.seed} breaks it: {said(found.error)}\nWhat breaks it:{faults}\n{found.history}\n"
        f"Once more: seeds=[{found.seed}]"
    )
