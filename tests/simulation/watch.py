"""What must hold at every moment: checked against a fold of our own, of each event as it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker import names
from penstock.broker.records.imports import ImportMark
from penstock.broker.worker_messages import decode as decode_task
from penstock.engine.run.commands import Command, SetTimer
from penstock.engine.run.events import (
    Event,
    Record,
    TimerFired,
    WorkflowCancelled,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
    decode,
)
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import STEP_DONE, Run, RunStatus, from_snapshot, to_snapshot
from penstock.engine.run.timers import live_timers
from tests.properties.laws import PERSON, ends, executions, lawful, result
from tests.simulation import importing, pruning
from tests.simulation.archiving import Archives
from tests.simulation.broken import Broken
from tests.simulation.limited.laws import LimitLaws
from tests.simulation.plan import Known
from tests.simulation.retold.by_hand import ByHand
from tests.simulation.retold.families import Families
from tests.simulation.retold.pauses import Pauses
from tests.simulation.retold.reruns import Reruns
from tests.simulation.retold.retelling import Retelling
from tests.simulation.streams import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.server import Server

CLOCK_S = 0.001  # sequences are stamped to the microsecond


class Watch:
    """Owned by a world. `on_change(before, run, event)` is told of each event that changed a run."""

    def __init__(
        self, server: Server, workflows: Mapping[str, Known], on_change: Callable[[Run | None, Run, Event], None]
    ) -> None:
        self._workflows, self._on_change, self._streams = workflows, on_change, server.streams
        self.runs: dict[str, Run] = {}
        self.of: dict[str, Known] = {}
        self.marks: dict[str, ImportMark] = {}
        self.retold: dict[str, Retelling] = {}
        self.pauses: dict[str, Pauses] = {}
        self.by_hand: dict[str, ByHand] = {}
        self._reruns: dict[str, Reruns] = {}
        self._rerun_asked: dict[str, int] = {}
        self.carried: dict[str, Run] = {}
        self.families = Families(server.history, self.retold)
        self._outside = server.streams[names.EVENTS]
        self.archives = Archives(server, self.runs)
        self.events = 0
        self._states: dict[str, dict[int, Run]] = {}
        self._happened: set[tuple[object, ...]] = set()
        server.on_store[names.HISTORY] = self._guarded(self._history)
        server.on_remove = self._guarded(self.archives.watch_removal)
        server.on_store[names.TASKS] = server.on_store[names.STICKY] = self._guarded(self._task)
        server.on_store[names.bucket_stream(names.RUNS)] = self._guarded(self._snapshot)
        self.limits = LimitLaws(self)
        server.on_store[names.LIMITS] = self._guarded(self.limits.stored)
        self.on_task: Callable[[Message], None] = lambda message: None
        self.broken: list[Broken] = []
        self.on_broken: Callable[[], None] = lambda: None

    def fail(self, broken: Broken) -> None:
        self.broken.append(broken)
        self.on_broken()

    @property
    def open(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs.values() if not run.ended]

    def _guarded(self, check: Callable[[Message], None]) -> Callable[[Message], None]:
        """What breaks a law is the finding, not an error of the broker's."""

        def guarded(message: Message) -> None:
            try:
                check(message)
            except Broken as broken:
                self.fail(broken)
            except Exception as error:
                self.fail(Broken(str(error) or repr(error), message.subject.rsplit(".", 1)[-1]))

        return guarded

    def _history(self, message: Message) -> None:
        if message.subject.startswith("schedule.") or importing.watch(self.marks, self.of, message):
            return
        if self.archives.watch(message):
            return
        self.events += 1
        record = Record(message.seq, message.at, decode(message.data))
        event, run_id = record.event, record.event.run_id
        if isinstance(event, WorkflowStarted | WorkflowScheduled) and run_id not in self.of:
            self._begun(run_id, self._workflows[event.payload.digest])
            if isinstance(event, WorkflowStarted) and event.payload.rerun_of is not None:
                self._reruns[run_id] = Reruns(self.of[run_id].definition, run_id, self._read(event.payload.rerun_of))
        if run_id not in self.of and isinstance(event, WorkflowCancelled):
            return  # a child that now never starts
        if run_id not in self.of:
            raise Broken("an event of a run that nobody started", run_id)
        before = self.runs.get(run_id)
        try:
            run, commands = lawful(self.of[run_id].workflow, before, record)
        except Exception as error:
            raise Broken(f"advance: {error!r}", run_id) from error
        pruning.watch(self.runs, before, run, event)
        if run is not None and before is not None:
            self.by_hand[run_id].take(before, run, record)
        if run is None or run is before:
            return
        self.runs[run_id] = run
        self._carried(before, run, message)
        self._states.setdefault(run_id, {})[run.seq] = run
        self._once(before, run, record, commands)
        self._in_time(before, record)
        if (retold := self.retold.get(run_id)) is not None:
            first = None if run.rerun_of is None else self.retold.get(run.rerun_of)
            retold.take(before, run, record, None if first is None else first.told)
        self.pauses[run_id].take(before, run, record)
        self.limits.out.changed(run)
        if (rerun := self._reruns.get(run_id)) is not None:
            rerun.take(run, record)
        self._on_change(before, run, event)

    def _carried(self, before: Run | None, run: Run, message: Message) -> None:
        """An end may carry the state of the run before it. Then all that came before is done."""
        state = message.headers.get(names.OWNER_STATE)
        if state is None:
            return
        if before is None or to_snapshot(before).decode() != state or not run.ended:
            raise Broken(f"the end carries {state}, which is not the fold of the history", run.run_id)
        self.carried[run.run_id] = run

    def rerun_asked(self, run_id: str) -> None:
        """Somebody is about to read the run, so as to start it again."""
        if run_id in self.runs:
            self._rerun_asked.setdefault(run_id, self.runs[run_id].seq)

    def _read(self, run_id: str) -> list[Run]:
        """The states of a run that whoever starts it again may have read, the latest first: it may have been resumed
        between that and the start of the new run."""
        asked, states = self._rerun_asked.get(run_id, 0), self._states[run_id].values()
        return [run for run in reversed(states) if run is self.runs[run_id] or (run.ended and run.seq >= asked)]

    def _begun(self, run_id: str, known: Known) -> None:
        self.of[run_id] = known
        pauses = self.pauses[run_id] = Pauses(known.definition, run_id)
        self.by_hand[run_id] = ByHand(run_id)
        if known.larger:
            self.retold[run_id] = Retelling(known.definition, run_id, self.families, pauses, self._outside)

    def _once(self, before: Run | None, run: Run, record: Record, commands: list[Command]) -> None:
        """One result for each step, iteration and attempt; one order and one end too."""
        found: list[tuple[object, ...]] = [("end", one) for one in ends(commands)]
        for *execution, whom in executions(commands):
            # A decision that was not asked for before a pause is ordered again.
            again = run.pauses if whom == PERSON and isinstance(record.event, WorkflowUnpaused) else 0
            found.append(("order", *execution, whom, again))
        if (one := result(before, run, record)) is not None:
            found.append(("result", *one))
        for thing in found:
            if (run.run_id, *thing) in self._happened:
                raise Broken(f"twice: {thing}", run.run_id)
            self._happened.add((run.run_id, *thing))

    def _in_time(self, before: Run | None, record: Record) -> None:
        event = record.event
        if before is None or not isinstance(event, TimerFired) or event.payload.early:
            return
        for timer in live_timers(before):
            early_s = timer.due - record.at
            if timer.timer == event.payload.timer and early_s > CLOCK_S and not _has_another(before, timer):
                raise Broken(f"the timer {timer.timer} fired {early_s:.3f} s too early", event.run_id)

    def _task(self, message: Message) -> None:
        task = decode_task(message.data)
        run, known = self.runs.get(task.run_id), self.of.get(task.run_id)
        if run is None or known is None or run.removed:
            raise Broken("a task of a run that nobody started, or that was removed", task.run_id)
        plan = expanded(known.workflow, run).plan_of(task.step_id)
        if plan is None:
            raise Broken(f"a task of {task.step_id}, which is no step", task.run_id)
        for needed in plan.depends_on:
            if run.steps[needed].status not in STEP_DONE:
                raise Broken(f"the step {task.step_id} is out before {needed} is done", task.run_id)
        if task.run_id in self.retold:
            self.retold[task.run_id].task(message, task)
        self.pauses[task.run_id].queued(message, task)
        self.by_hand[task.run_id].queued(message, task)
        self.limits.out.queued(task)
        if task.run_id in self._reruns:
            self._reruns[task.run_id].queued(task)
        self.on_task(message)

    def _snapshot(self, message: Message) -> None:
        if not message.data:
            return  # that of a removed run was deleted
        run = from_snapshot(message.data)
        known = self._states.get(run.run_id, {}).get(run.seq)
        if known is None or to_snapshot(known) != message.data:
            raise Broken(
                f"the snapshot at {run.seq} is not the fold of the history: "
                f"{message.data!r}, {known and to_snapshot(known)!r}",
                run.run_id,
            )
        self.pauses[run.run_id].saved(run, self._streams, self.runs[run.run_id])
        self.by_hand[run.run_id].saved(run, self._streams, self.runs[run.run_id])
        if run.run_id in self.retold:
            self.retold[run.run_id].saved(run, self._streams)


def _has_another(run: Run, timer: SetTimer) -> bool:
    """Whether an earlier timer of this name may be on its way: the wait for a bound worker begins anew after a pause of
    the run, and the wait for an element of a map when the run begins to undo its steps."""
    if timer.timer.startswith("sticky."):
        return run.pauses > 0
    return run.status is RunStatus.COMPENSATING and timer.step_id not in run.steps
