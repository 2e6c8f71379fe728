"""What lies outside of the run: its children, the events that it waits for, and the runs that its failures start."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.engine.run.commands import AwaitEvent, CancelChild, StartChild, StartFailureRun
from penstock.engine.run.event_payloads import ChildEnd, EventWait, ReceivedEvent, TimerRef
from penstock.engine.run.events import ChildEnded, EventReceived, StepFailed, StepStarted, TimerFired
from penstock.engine.run.execution.children import child_refused, child_run_id, child_started
from penstock.engine.run.execution.failure_runs import failure_run_id
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339

NOWHERE = "nowhere"  # a workflow that nobody has registered
RUNS, CANCELLED, ENDED = "runs", "is to be cancelled", "has ended"
ENDS = ("completed", "completed", "completed", "failed", "too large", "cancelled")


class Child(Struct, frozen=True):
    """Whose child it is. One that was cancelled before its start has none, and never begins."""

    status: str
    command: StartChild | None = None


class Occurred(Struct, frozen=True):
    """An event of that name, whose body is `{"x": value}`."""

    seq: int
    at: float
    name: str
    value: int


class Outside:
    """Owned by the world. All of it outlives every process."""

    def __init__(self) -> None:
        self.children: dict[str, Child] = {}
        self.waits: dict[tuple[str, int], AwaitEvent] = {}
        self.events: list[Occurred] = []
        self.failure_runs: dict[str, StartFailureRun] = {}
        self.reports: list[ChildEnded] = []  # to the run's own parent

    def start_child(self, run: Run, command: StartChild) -> StepStarted | StepFailed:
        """A child begins once, and never after it was cancelled."""
        child = child_run_id(run.run_id, command.step_id, command.attempt)
        if command.workflow == NOWHERE and child not in self.children:
            return child_refused(run, command, "nobody has registered it")
        self.children.setdefault(child, Child(RUNS, command))
        return child_started(run, command)

    def cancel_child(self, run_id: str, command: CancelChild) -> None:
        child = child_run_id(run_id, command.step_id, command.attempt)
        found = self.children.get(child, Child(ENDED))
        self.children[child] = replace(found, status=CANCELLED) if found.status == RUNS else found

    def living(self) -> list[str]:
        """The children that have not ended, in the order of their starts."""
        return [child for child, found in self.children.items() if found.status != ENDED]

    def neglected(self) -> list[StartChild]:
        """The children that somebody waits for, and nobody has cancelled."""
        found = (child.command for child in self.children.values() if child.status == RUNS)
        return [command for command in found if command is not None and not command.detached]

    def end_child(self, run_id: str, child: str, how: str, now: float) -> ChildEnded | None:
        """It ends, in spite of a cancellation perhaps; None: nobody is told."""
        command = self.children[child].command
        assert command is not None
        self.children[child] = Child(ENDED, command)
        if command.detached:
            return None
        return ChildEnded(
            run_id=run_id,
            step_id=command.step_id,
            timestamp=rfc3339(now),
            attempt_number=command.attempt,
            item=command.item,
            payload=_end(child, how),
        )

    def start_failure_run(self, run_id: str, command: StartFailureRun) -> None:
        started = self.failure_runs.setdefault(failure_run_id(run_id, command.resumes), command)
        assert started == command, "a repeat starts the same run"

    def occur(self, name: str, value: int, at: float) -> None:
        self.events.append(Occurred(len(self.events) + 1, at, name, value))

    def outcome(self, run_id: str, command: AwaitEvent, now: float, match: bool) -> EventReceived | TimerFired | None:
        """What ends the wait, for whoever looks, and whenever: the first event that counts, or that none came in
        time."""
        wait = command.wait
        found = next(_counting(self.events, wait, match), None)
        if found is not None:
            body = Raw(b'{"x":%d}' % found.value)
            return EventReceived(
                run_id=run_id,
                step_id=command.step_id,
                timestamp=rfc3339(found.at),
                attempt_number=command.attempt,
                payload=ReceivedEvent(found.name, found.seq, body),
            )
        if wait.until is None or now <= wait.until:
            return None
        ref = TimerRef(timer=f"wait.{command.step_id}", step_id=command.step_id, attempt=command.attempt)
        return TimerFired(run_id=run_id, timestamp=rfc3339(wait.until), payload=ref)

    def wanted(self, command: AwaitEvent) -> tuple[str, int]:
        """Name and value of an event that the wait would take."""
        correlate = command.wait.correlate
        return command.wait.event, 1 if correlate is None else int(bytes(correlate.value))


def _counting(events: list[Occurred], wait: EventWait, match: bool) -> Iterator[Occurred]:
    for event in events:
        in_time = wait.since <= event.at and (wait.until is None or event.at <= wait.until)
        correlates = wait.correlate is None or int(bytes(wait.correlate.value)) == event.value
        meets = correlates and (not match or event.value == 1)
        if event.name == wait.event and in_time and meets and event.seq not in wait.passed:
            yield event


def _end(child: str, how: str) -> ChildEnd:
    match how:
        case "completed":
            return ChildEnd(child, how, Raw(b'{"x":1}'))
        case "too large":
            return ChildEnd(child, "completed", output_bytes=2_000_000)
        case _:
            return ChildEnd(child, how, error="boom")
