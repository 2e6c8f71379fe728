"""What lies around `advance`: queues, timers, dead letters, and what workers say. As fallible as the real ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar, assert_never

import orjson
from msgspec import Raw

from penstock.broker import message_ids
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.commands import (
    AppendEvent,
    AwaitEvent,
    BeginStep,
    BindWorker,
    CancelChild,
    CancelTask,
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    ExpandPlan,
    OpenApproval,
    PauseChild,
    ReleaseSlot,
    RemoveDeadLetters,
    RequestApproval,
    RequestSlot,
    SetTimer,
    StartChild,
    StartFailureRun,
    StopWaiting,
    WithdrawQueued,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
    is_within,
)
from penstock.engine.run.event_payloads import ApprovalRequest, Failure
from penstock.engine.run.events import (
    ApprovalRequested,
    ChildEnded,
    Event,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepStarted,
)
from penstock.engine.times import rfc3339
from tests.properties.definitions import PLANS
from tests.properties.outside import Outside

RUN_ID = "0" * 32
OUTPUTS = ('{"x":1}', '{"x":0}', "null")
TOO_MUCH = '"' + "x" * PAYLOAD_BYTES_MAX + '"'
FAILURES = ("retriable", "some other word", "retry_after", "non_retriable")

HISTORY_WINDOW_S, TASK_WINDOW_S = 5.0, 120.0

T = TypeVar("T")


def some(things: Sequence[T], pick: int) -> T:
    return things[pick % len(things)]


class Broker:
    """It knows a message by its id for a while and drops repeats, which may be the death of a run that counts on them.

    `tasks` are out and unanswered, `held` were answered or withdrawn but some worker may still think of them; `ghosts`
    are timers that may fire though they were withdrawn.
    """

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.in_flight: list[Event] = []
        self.tasks: list[DispatchTask] = []
        self.held: list[DispatchTask] = []
        self.timers: dict[str, SetTimer] = {}
        self.ghosts: list[SetTimer] = []
        self.letters: dict[int, DeadLetterTask] = {}
        self.last_letter = 0
        self.bound: str | None = None
        self.tokens = 0
        self.deliveries: Counter[tuple[str, int, int, str | None]] = Counter()
        self.outside = Outside()
        self._seen: dict[str, float] = {}

    def takes(self, stream: str, name: str, window_s: float) -> bool:
        """Whether a message is stored; one whose id came by within the window is a repeat."""
        key = f"{stream} {name}"
        if self.now - self._seen.get(key, float("-inf")) < window_s:
            return False
        self._seen[key] = self.now
        return True

    def takes_event(self, name: str) -> bool:
        return self.takes("history", name, HISTORY_WINDOW_S)

    def do(self, command: Command) -> None:
        match command:
            case DispatchTask():
                self._queue(command)
            case WithdrawTask():
                self._withdraw(command)
            case WithdrawSticky():
                wanted = (command.step_id, command.iteration, command.attempt, command.worker)
                for task in [
                    task for task in self.tasks if (task.step_id, task.iteration, task.attempt, task.worker) == wanted
                ]:
                    self.put_away(task)
            case SetTimer():
                self.timers[command.timer] = command
            case WithdrawTimer():
                if command.timer in self.timers:
                    self.ghosts.append(self.timers.pop(command.timer))
            case DeadLetterTask():
                name = message_ids.of_task(RUN_ID, command.step_id, command.iteration, command.attempt)
                if self.takes("dead", name, TASK_WINDOW_S):
                    self.last_letter += 1
                    self.letters[self.last_letter] = command
            case RemoveDeadLetters():
                gone = [
                    seq
                    for seq, dead_letter in self.letters.items()
                    if dead_letter.step_id == command.step_id and seq <= command.up_to_seq
                ]
                for seq in gone:
                    del self.letters[seq]
            case BindWorker():
                assert self.bound in (None, command.worker_id), "a run keeps to one worker"
                self.bound = command.worker_id
            case RequestApproval():
                self.in_flight.append(self._request(command))
            case AppendEvent(event=ChildEnded() as event):
                self.outside.reports.append(event)
            case AppendEvent():
                self.in_flight.append(command.event)
            case AwaitEvent():
                self.outside.waits[command.step_id, command.attempt] = command
            case StopWaiting():
                self.outside.waits.pop((command.step_id, command.attempt), None)
            case CancelChild():
                self.outside.cancel_child(RUN_ID, command)
            case StartFailureRun():
                self.outside.start_failure_run(RUN_ID, command)
            case OpenApproval() | CancelTask() | PauseChild():
                pass
            case (
                WithdrawQueued() | BeginStep() | StartChild() | ExpandPlan() | CompleteRun()
                | RequestSlot() | ReleaseSlot()
            ):  # fmt: skip
                raise AssertionError("the shell works it out")
            case _:
                assert_never(command)

    def delivery(self, task: DispatchTask) -> int:
        """Which delivery of the task its worker has; it comes again when it was put aside, or its worker has died."""
        return 1 + self.deliveries[_execution(task)]

    def deliver_again(self, task: DispatchTask) -> None:
        self.deliveries[_execution(task)] += 1

    def put_away(self, task: DispatchTask) -> None:
        self.tasks.remove(task)
        self.held.append(task)

    def withdraw_queued(self, command: WithdrawQueued, waits: Callable[[DispatchTask], bool]) -> None:
        """What waits there for this run, which is paused. A worker may have taken it just before."""
        for task in list(self.tasks):
            same = (task.task, task.worker) == (command.task, command.worker)
            if same and (command.worker is not None or task.group == command.group) and waits(task):
                self.put_away(task)

    def _queue(self, task: DispatchTask) -> None:
        if task.again and any(_execution(task) == _execution(other) for other in self.tasks):
            return  # it was not withdrawn
        stream = "queue" if task.worker is None else "sticky"
        name = message_ids.of_task(RUN_ID, task.step_id, task.iteration, task.attempt, task.again)
        if self.takes(stream, name, TASK_WINDOW_S):
            self.tasks.append(task)

    def _withdraw(self, command: WithdrawTask) -> None:
        """As a purge does: whatever waits there for this run, of whichever step and attempt."""
        for task in list(self.tasks):
            same = task.task == command.task and task.worker == command.worker
            same = same and (command.of_step is None or is_within(task.step_id, command.of_step))
            if same and (command.worker is not None or task.group == command.group):
                self.put_away(task)

    def _request(self, command: RequestApproval) -> ApprovalRequested:
        self.tokens += 1
        request = ApprovalRequest(token=f"token-{self.tokens}", expires_at=rfc3339(command.expires))
        return ApprovalRequested(
            run_id=RUN_ID,
            step_id=command.step_id,
            timestamp=rfc3339(self.now),
            attempt_number=command.attempt,
            payload=request,
        )


def _execution(task: DispatchTask) -> tuple[str, int, int, str | None]:
    return task.step_id, task.iteration, task.attempt, task.worker


def said(
    task: DispatchTask,
    answer: str,
    numbered: bool,
    now: float,
    worker: str,
    delivery: int = 1,
    plan: int = 0,
    began: float | None = None,
) -> Event:
    """What a worker says of its task: `started`, `paused`, `continue`, a failure type, or an output; that of a planner
    is one of the plans. An answer may say when it `began`, in place of a start."""
    fields = {
        "run_id": RUN_ID,
        "timestamp": rfc3339(now),
        "step_id": task.step_id,
        "attempt_number": task.attempt if numbered else None,
        "iteration": (task.iteration or None) if numbered else None,
        "worker_id": task.worker or worker,
        "item": task.item,
    }
    if answer in ("started", "paused"):
        kind = StepStarted if answer == "started" else StepPaused
        return kind(delivery=delivery, **fields)  # type: ignore[arg-type]
    if began is not None:
        fields |= {"started_at": rfc3339(began), "delivery": delivery}
    if answer == "continue":
        return StepContinue(payload=Raw(b'{"next":1}'), **fields)  # type: ignore[arg-type]
    if answer in OUTPUTS and task.step_type == "planner":
        return StepCompleted(payload=Raw(orjson.dumps(some(PLANS, plan))), **fields)  # type: ignore[arg-type]
    if answer in (*OUTPUTS, TOO_MUCH):
        return StepCompleted(payload=Raw(answer.encode()), **fields)  # type: ignore[arg-type]
    return StepFailed(payload=Failure(error="boom", failure_type=answer, retry_after_ms=7000), **fields)  # type: ignore[arg-type]


def is_numbered(event: Event) -> bool:
    """Whether the event says of which attempt it speaks, if it speaks of one."""
    kinds = StepStarted | StepPaused | StepCompleted | StepFailed | StepContinue
    return not isinstance(event, kinds) or event.attempt_number is not None


def id_of(event: Event) -> str | None:
    """The id under which it is sent; a worker that does not number its answers sends none."""
    return message_ids.of_event(event) if is_numbered(event) else None
