"""Commands of a replay: what other runs and people did to the run happens as it did then."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from penstock.engine.run.commands import (
    AppendEvent,
    AwaitEvent,
    Command,
    CompleteRun,
    RequestApproval,
    RequestSlot,
    SetTimer,
    StartChild,
    TakeOver,
)
from penstock.engine.run.events import ApprovalRequested, Record
from penstock.engine.run.execution.children import child_started
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.limits import LimitsInMemory
from penstock.testing.memory.performing import Performer
from penstock.testing.memory.tasks import TasksInMemory
from penstock.testing.memory.waits import WaitsInMemory
from penstock.testing.replaying.recording import Recording


class ReplayedLimits(LimitsInMemory):
    """Slots come when they came. What was not asked for then is granted by a limit that nobody else uses."""

    def __init__(self, engine: EngineInMemory, recording: Recording) -> None:
        super().__init__(engine)
        self._recording = recording

    def request(self, of: RunInMemory, command: RequestSlot) -> None:
        told = self._recording.next_slot(command.holder)
        if told is None:
            super().request(of, command)
        else:
            self._engine.append_at(told.at, told.event)


class ReplayedWaits(WaitsInMemory):
    """Events come that came."""

    def __init__(self, engine: EngineInMemory, recording: Recording) -> None:
        super().__init__(engine)
        self._recording = recording

    def begin(self, of: RunInMemory, command: AwaitEvent) -> None:
        received = self._recording.received((command.step_id, command.attempt))
        if received is None:
            super().begin(of, command)
        else:
            self._engine.append_at(received.at, received.event)


class ReplayPerformer(Performer):
    """Owned by a replay."""

    def __init__(
        self,
        engine: EngineInMemory,
        tasks: TasksInMemory,
        waits: WaitsInMemory,
        limits: LimitsInMemory,
        recording: Recording,
    ) -> None:
        super().__init__(engine, tasks, waits, limits)
        self._recording = recording

    def _perform(self, of: RunInMemory, command: Command) -> None:
        if isinstance(command, TakeOver):
            for record in self._recording.taken_over:
                self._at_its_time(record)
            return
        if isinstance(command, AppendEvent | CompleteRun):
            at = self._recording.stored_at(command.event)
            if at is not None:
                self._engine.timeline.at(at, partial(super()._perform, of, command))
                return
        super()._perform(of, command)
        if isinstance(command, RequestApproval):
            self._at_its_time(self._recording.decision((command.step_id, command.attempt)))

    def _set_timer(self, run_id: str, command: SetTimer) -> None:
        at = self._recording.fired_at(command.timer, command.due)
        super()._set_timer(run_id, command if at is None else replace(command, due=at))

    def _start_child(self, of: RunInMemory, command: StartChild) -> None:
        """The child is not there; its end is."""
        ended = self._recording.child_end((command.step_id, command.attempt))
        self._engine.append(child_started(of.known, command))
        self._at_its_time(ended)

    def _approval(self, of: RunInMemory, command: RequestApproval) -> ApprovalRequested:
        event, token = super()._approval(of, command), self._recording.token((command.step_id, command.attempt))
        return event if token is None else replace(event, payload=replace(event.payload, token=token))

    def _at_its_time(self, record: Record | None) -> None:
        if record is not None:
            self._engine.append_at(record.at, record.event)
