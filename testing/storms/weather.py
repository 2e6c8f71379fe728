"""One run in a storm: its service, what happens to it from outside, and what is checked when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from penstock.engine.errors import Conflict
from penstock.testing.memory.catalog import Definition
from penstock.testing.memory.script import Script
from penstock.testing.run import TestRun
from penstock.testing.service import TestService
from penstock.testing.storms.faults import Fault, FaultKind, Faults, late

STEPS_MAX = 100_000  # moments of one run
DECIDED = 0.9  # of all approvals; nobody decides about the others
APPROVED = 0.9
OUTSIDE = 0.2  # of all runs are paused, and so many cancelled, if that is asked for
CALM = -1


class StormCase(Struct, frozen=True):
    """What happens with each seed (storm.py says what they mean)."""

    workflow: Definition
    input: Any
    others: tuple[Definition, ...] = ()
    tasks: Mapping[str, Callable[..., Any]] | None = None
    http: Callable[..., Any] | None = None
    kinds: frozenset[FaultKind] = frozenset()
    before: Callable[[], object] | None = None
    drive: Callable[[TestService, TestRun], object] | None = None
    check: Callable[[TestRun], object] | None = None
    same_output: bool = True


class Passed(Struct, frozen=True):
    """What came of one seed. `error` is what was found wrong, if something was."""

    seed: int
    status: str
    faults: tuple[Fault, ...]
    history: str
    output: Any = None
    error: Exception | None = None


class StormService(TestService):
    """A service whose script is that of a storm."""

    def __init__(self, case: StormCase, faults: Faults) -> None:
        self._faults = faults
        super().__init__(*case.others, tasks=case.tasks, http=case.http)

    def _make_script(self) -> Script:
        return self._faults


def calm(case: StormCase) -> Passed:
    """The run when nothing goes wrong, and everything is approved. Raises AssertionError with what is wrong with it
    then."""
    passed = _through(case, CALM, (), None)
    if passed.error is not None:
        raise AssertionError(f"without any fault: {said(passed.error)}\n{passed.history}") from passed.error
    return passed


def said(error: Exception) -> str:
    """What was found wrong, for people."""
    if isinstance(error, AssertionError):
        return str(error) or "an assertion does not hold"
    return f"{type(error).__name__}: {error}"


def through(case: StormCase, seed: int, usual: Passed, only: Collection[Fault] | None = None) -> Passed:
    """The run with the faults of a seed, or only with these; `usual` is what comes of it without any."""
    return _through(case, seed, only, usual)


def _through(case: StormCase, seed: int, only: Collection[Fault] | None, usual: Passed | None) -> Passed:
    if case.before is not None:
        case.before()
    faults = Faults(seed, case.kinds, only)
    with StormService(case, faults) as service:
        run = service.start(case.workflow, case.input)
        for fault in _outside(faults, case.kinds) if only is None else only:
            if fault.step is None:
                faults.happened.append(fault)
                _plan(service, run, fault)
        output, error = None, None
        try:
            _drive(case, service, run, faults)
            output = run.output if run.status == "completed" else None
            if case.same_output and usual is not None and "completed" == run.status == usual.status:
                assert output == usual.output, f"the output is {output!r}, without faults it is {usual.output!r}"
            if case.check is not None:
                case.check(run)
        except Exception as found:
            error = found
        return Passed(seed, run.status, tuple(faults.happened), run.history, output, error)


def _outside(faults: Faults, kinds: Collection[FaultKind]) -> list[Fault]:
    """What happens to the run as a whole."""
    found = []
    for kind in (FaultKind.PAUSE, FaultKind.CANCEL):
        draw = faults.random(kind)
        if kind in kinds and draw.random() < OUTSIDE:
            found.append(Fault(kind, after_s=late(draw) - 1, for_s=late(draw) if kind is FaultKind.PAUSE else 0.0))
    return found


def _plan(service: TestService, run: TestRun, fault: Fault) -> None:
    if fault.kind is FaultKind.PAUSE:
        service.after(fault.after_s, _if_it_goes_on(run.pause))
        service.after(fault.after_s + fault.for_s, _if_it_goes_on(run.resume))
    else:
        service.after(fault.after_s, _if_it_goes_on(run.cancel))


def _if_it_goes_on(act: Callable[[], None]) -> Callable[[], None]:
    def acted() -> None:
        with suppress(Conflict):
            act()

    return acted


def _drive(case: StormCase, service: TestService, run: TestRun, faults: Faults) -> None:
    if case.drive is not None:
        case.drive(service, run)
    asked = set[tuple[str, str]]()
    for _ in range(STEPS_MAX):
        for one in service.runs:
            for step_id in one.asking:
                if (one.id, step_id) not in asked:
                    asked.add((one.id, step_id))
                    _decide(service, one, step_id, faults, len(asked))
        if run.ended or not service.advance_to_next():
            break
    else:
        raise AssertionError(f"the run does not end: after {STEPS_MAX} moments it is {service.now}")
    assert run.ended, f"the run does not end: it is {run.status}, and nothing is due{_waits(service)}"


def _decide(service: TestService, run: TestRun, step_id: str, faults: Faults, number: int) -> None:
    draw = faults.random("approval", number)
    if not faults.is_calm and draw.random() > DECIDED:
        return
    decision = run.approve if faults.is_calm or draw.random() < APPROVED else run.reject
    service.after(0.0 if faults.is_calm else late(draw), _if_it_goes_on(lambda: decision(step_id, by="storm")))


def _waits(service: TestService) -> str:
    missing = sorted({f"{task!r}" for _, task in service.waiting_tasks()})
    return f"; no function is there for {', '.join(missing)}" if missing else " (drive can send what it waits for)"
