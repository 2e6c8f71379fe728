"""Effects: carry out the commands of the engine by messages to the broker. Everything here is safe to do twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import assert_never

from msgspec.structs import replace

from penstock.actors.runs.commands.approval_requests import approval_request, open_approval
from penstock.actors.runs.commands.cancelled_tasks import CancelledTasks
from penstock.actors.runs.commands.children import Children
from penstock.actors.runs.commands.paused_tasks import PausedTasks
from penstock.actors.runs.commands.slots import Slots
from penstock.actors.runs.commands.step_values import VALUE_BYTES_MAX, StepValues
from penstock.actors.runs.commands.takeovers import Takeovers
from penstock.actors.runs.end_state import OwnEnd, complete, is_completion
from penstock.actors.runs.outputs import Outputs, is_light
from penstock.actors.runs.shared.answers import sent, stored
from penstock.actors.runs.shared.lease import ShardLease
from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.actors.runs.shared.spans import header_of_step
from penstock.actors.runs.timers import Timers
from penstock.actors.runs.waits.event_waits import EventWaits
from penstock.broker import message_ids
from penstock.broker.store import Store
from penstock.broker.streams.history import RunEvent
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, ExpressionFailed, Invalid, NotFound, PenstockError, TooLarge, Unavailable
from penstock.engine.fragments import expansion
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
    TakeOver,
    WithdrawQueued,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import NULL, RunFailure
from penstock.engine.run.events import WorkflowCancelled, WorkflowCompensating, WorkflowCompleted, WorkflowFailed
from penstock.engine.run.execution.beginning import (
    begin_step,
    given_input,
    refused,
)
from penstock.engine.run.execution.compensation import can_undo
from penstock.engine.run.execution.failure_runs import failure_start
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339

PLAIN_MAX = 16  # messages that may be sent beyond what is without an answer already
SENT_AT_ONCE = 256  # commands of one run, before others have their turn
LOOKS = (WithdrawTask, WithdrawSticky, CancelTask)
HEAVY_AT_ONCE = 4  # messages with large payloads that are read, joined and not stored yet

log = get_logger()


def _is_plain(command: Command) -> bool:
    """Whether the command is a task for any worker, for which nothing is read or looked for."""
    return (
        isinstance(command, DispatchTask) and command.worker is None and not command.again and is_light(command.input)
    )


class Effects:
    """Owned by a shard. `heavy` is held for each message with a large payload, from reading it until it is stored."""

    def __init__(self, store: Store, lease: ShardLease, timers: Timers, waits: EventWaits) -> None:
        self._store, self._lease, self._timers, self._waits = store, lease, timers, waits
        self.heavy = asyncio.Semaphore(HEAVY_AT_ONCE)
        self._values = StepValues(lease, self.heavy)
        self.evaluator = self._values.evaluator
        self._slots = Slots(store, lease, self._values)
        self._children = Children(store, lease)
        self._takeovers = Takeovers(store, lease, self.heavy)
        self._cancelled_tasks = CancelledTasks(store)
        self._paused = PausedTasks(store, lease)

    async def perform(
        self, workflow: Workflow, run: Run, commands: list[Command], since: float, events: Sequence[PendingEvent] = ()
    ) -> OwnEnd | None:
        """Carry out the commands that `events` caused. Return when the broker has stored everything; with the run's
        end, if this has stored it in such a way that the run is known after it.

        `since` is when the first of them was received (monotonic). What can never be sent (too large, or missing from
        the history) fails the run with a text that says so. Raises Unavailable for any other refusal: the run goes on
        once its cause is mended.
        """
        self._lease.check()
        workflow = expanded(workflow, run)
        self._paused.forget(run.run_id)
        try:
            last = commands[-1] if commands else None
            if last is None or not is_completion(last):
                await self._send_all(workflow, run, commands, since, events)
                return None
            await self._send_all(workflow, run, commands[:-1], since, events)
            await self._room()
            # Who reads the state that the end carries looks for nothing before it.
            return await complete(self._store.history, workflow, run, last.event)
        except (Unavailable, Conflict):
            raise
        except (TooLarge, NotFound, Invalid) as error:
            log.error("command_refused", run_id=run.run_id, error=str(error))
            refused = RunFailure(error=f"the run cannot go on: {error}", resumes=run.resumes)
            failed = WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(time.time()), payload=refused)
            await self._send_end(workflow, run, failed)
        except PenstockError as error:  # the removal of a message, for example: the fault is the broker's
            raise Unavailable(f"the broker refuses what the run needs: {error}") from error
        return None

    async def _room(self) -> None:
        """Return when there is room for another message, and the lease is good."""
        if self._store.publisher.full:
            await self._store.publisher.room()
        self._lease.check()

    async def _send_all(
        self, workflow: Workflow, run: Run, commands: list[Command], since: float, events: Sequence[PendingEvent]
    ) -> None:
        """Return when everything is stored."""
        if len(commands) <= PLAIN_MAX and all(map(_is_plain, commands)) and not self._store.publisher.full:
            await stored([self._send_task(run, command) for command in commands])  # type: ignore[arg-type]
            return
        outputs = Outputs(self._store.history, run.run_id, events)
        for command in commands:
            if isinstance(command, DeadLetterTask):  # readable before the event that fails the run
                await self._dead_letter(workflow, run, command, outputs)
                reached("dead_letter.stored")
        answers: list[asyncio.Future[bytes] | None] = []
        for number, command in enumerate(commands, 1):
            if self._store.publisher.full:
                await self._room()
            elif not number % SENT_AT_ONCE:
                await asyncio.sleep(0)
                self._lease.check()
            if isinstance(command, LOOKS) or self._paused.looks(run, command):
                await stored(answers)  # it looks for what is stored, and an earlier command may have sent one
                self._lease.check()
            answers.append(sent(await self._send(workflow, run, command, since, outputs)))
        await stored(answers)

    def _send_task(self, run: Run, command: DispatchTask) -> asyncio.Future[bytes]:
        """Send a command that `_is_plain`."""
        return sent(self._store.tasks.send(run.run_id, run.workflow_id, command, self._trace(run, command)))

    async def _send(
        self, workflow: Workflow, run: Run, command: Command, since: float, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Send one command. Returns a future for an answer that is still to come."""
        match command:
            case DispatchTask():
                if command.or_anyone and not await self._is_taken(command):
                    command = replace(command, worker=None)
                if command.again and await self._paused.is_queued(run, command):
                    return None
                if is_light(command.input):
                    return self._store.tasks.send(run.run_id, run.workflow_id, command, self._trace(run, command))
                await self._dispatch(run, command, outputs)
            case BeginStep():
                return await self._begin(workflow, run, command, since, outputs)
            case StartChild():
                if is_light(command.input):
                    return start(self._children.start(run, command), name="child", expected=PenstockError)
                async with self.heavy:
                    await self._children.start(run, command)
            case StartFailureRun():
                await self._after_failure(workflow, run, command, outputs)
            case CancelChild():
                return self._children.cancel(run, command)
            case TakeOver():
                if run.taking is not None:  # else a later event of this turn has brought the last of it
                    await self._takeovers.carry_out(run)
            case CancelTask():
                return await self._cancelled_tasks.notify(run.run_id, command)
            case PauseChild():
                return self._children.pause(run, command)
            case ExpandPlan():
                return await self._expand(workflow, run, command, outputs)
            case CompleteRun():
                await self._complete(workflow, run, command, outputs)
            case AppendEvent(
                event=WorkflowCompleted() | WorkflowFailed() | WorkflowCancelled() | WorkflowCompensating() as event
            ):
                return self._send_end(workflow, run, event)
            case AppendEvent():
                return self._store.history.send(command.event)
            case SetTimer():
                self._timers.arm(run.run_id, command, since)
            case WithdrawTimer():
                await self._timers.withdraw(run.run_id, command.timer)
            case WithdrawTask():
                await self._store.tasks.withdraw(
                    run.run_id, command.task, command.group, command.worker, self._lease.check, command.of_step
                )
            case WithdrawQueued():
                await self._paused.withdraw(run, command)
            case WithdrawSticky():
                await self._store.tasks.withdraw_sticky(run.run_id, command, self._lease.check)
            case BindWorker():
                return self._store.sticky_bindings.send(run.run_id, command.worker_id.encode())
            case RequestApproval():
                return self._store.history.send(approval_request(run, command))
            case OpenApproval():
                await open_approval(self._store, run, command)
            case AwaitEvent():
                plan = workflow.plan_of(command.step_id)
                return self._waits.begin(run, command, plan is not None and bool(plan.later))
            case StopWaiting():
                return self._waits.end(run.run_id, command)
            case RequestSlot():
                return await self._slots.request(workflow, run, command, outputs)
            case ReleaseSlot():
                return await self._slots.release(workflow, run, command, outputs)
            case RemoveDeadLetters():
                await self._store.dead_letters.remove_task(run.run_id, command.step_id, command.task, command.up_to_seq)
            case DeadLetterTask():
                pass
            case _:
                assert_never(command)
        return None

    async def _after_failure(self, workflow: Workflow, run: Run, command: StartFailureRun, outputs: Outputs) -> None:
        assert workflow.on_failure is not None
        wanted = run.input if run.input_at is None else run.input_at
        try:
            async with self.heavy:
                given = await outputs.whole(wanted, VALUE_BYTES_MAX)
                value, labels = failure_start(workflow, run, command, given)
                self._lease.check()
                of = workflow.on_failure.workflow
                await self._children.start_after_failure(run, of, command.resumes, value, labels)
        except (ExpressionFailed, NotFound, TooLarge) as error:
            log.error("failure_run_refused", run_id=run.run_id, error=str(error))

    async def _begin(
        self, workflow: Workflow, run: Run, command: BeginStep, since: float, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Evaluate the step's expressions, and carry out what follows. A step begins with one command."""
        answer = None
        try:
            for following in await self._following(workflow, run, command, outputs):
                if command.again and isinstance(following, DispatchTask):
                    following = replace(following, again=command.again)
                answer = await self._send(workflow, run, following, since, outputs)
        except (TooLarge, NotFound, Invalid) as error:
            if run.status is not RunStatus.COMPENSATING:
                raise
            log.error("compensation_refused", run_id=run.run_id, step_id=command.step_id, error=str(error))
            return self._store.history.send(refused(run, command, str(error)))  # the others go on
        return answer

    async def _following(self, workflow: Workflow, run: Run, command: BeginStep, outputs: Outputs) -> Sequence[Command]:
        plan = workflow.plan_of(command.step_id)
        assert plan is not None, "the step is there"
        payloads = await self._values.given(workflow, run, plan, outputs)
        ready = await self._values.ready(run, plan, payloads)
        return begin_step(workflow, run, command, payloads, ready, self._store.history.age_s_max)

    async def _expand(
        self, workflow: Workflow, run: Run, command: ExpandPlan, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Check a planner's plan, and append what follows."""
        if not is_planned(run, command):
            return None
        async with self.heavy:
            plan = await outputs.whole(output_of(run, command.step_id), VALUE_BYTES_MAX)
            self._lease.check()
            event = expansion(workflow, run, command, plan)
        reached("planner.checked")
        message_id = message_ids.of_checked_plan(run.run_id, command.step_id, command.attempt)
        return self._store.history.send(event, message_id)

    async def _is_taken(self, command: DispatchTask) -> bool:
        """Whether the task's worker accepts tasks of this type. It may have to ask the broker."""
        assert command.worker is not None
        known = self._store.sticky_tasks.known_to_take(command.task, command.worker)
        if known is None:
            known = await self._store.sticky_tasks.takes(command.task, command.worker)
            self._lease.check()
        return known

    async def _dispatch(self, run: Run, command: DispatchTask, outputs: Outputs) -> None:
        async with self.heavy:
            try:
                value = await outputs.whole(command.input, self._store.publisher.body_bytes_max)
                self._lease.check()
                command = replace(command, input=value)
                await self._store.tasks.send(run.run_id, run.workflow_id, command, self._trace(run, command))
            except (NotFound, TooLarge) as error:
                raise type(error)(f'step "{command.step_id}" cannot be given its input: {error}') from error

    def _trace(self, run: Run, command: DispatchTask) -> str | None:
        """The span of this execution for its worker, where spans are exported."""
        otlp = self._store.telemetry.otlp
        if otlp is None:
            return None
        return header_of_step(otlp, run, command.step_id, command.attempt, command.iteration)

    async def _complete(self, workflow: Workflow, run: Run, command: CompleteRun, outputs: Outputs) -> None:
        async with self.heavy:
            value = await outputs.whole(command.output, self._store.publisher.body_bytes_max)
            self._lease.check()
            completed = replace(command.event, payload=replace(command.event.payload, output=value))
            await self._send_end(workflow, run, completed)

    def _send_end(self, workflow: Workflow, run: Run, event: RunEvent) -> asyncio.Future[bytes]:
        """Send the end of the run, or that it undoes its steps. Readers may trust it unless the run was resumed since,
        for then `advance` refuses it, or may have steps to undo first."""
        history = self._store.history
        match event:
            case WorkflowCompleted() | WorkflowFailed() if event.payload.resumes != run.resumes:
                return history.send(event)
            case WorkflowFailed() if event.payload.compensation is None and can_undo(workflow):
                return history.send(event)
            case WorkflowCancelled() if event.payload.compensation is None:  # refused by a limit, perhaps once resumed
                return history.send_end(event, run.seq, message_ids.of_cancellation(run.run_id, run.resumes))
            case _:
                return history.send_end(event, run.seq)

    async def _with_input(
        self, workflow: Workflow, run: Run, command: DeadLetterTask, outputs: Outputs
    ) -> DeadLetterTask:
        """The dead letter with the input that the task was given."""
        plan = workflow.plan_of(command.step_id)
        assert plan is not None, "the step is there"
        try:
            payloads = await self._values.given(workflow, run, plan, outputs)
            return replace(command, input=given_input(workflow, run, plan, payloads))
        except (ExpressionFailed, NotFound, TooLarge) as error:
            return replace(command, error=f"{command.error} (its input is not kept here: {error})")

    async def _dead_letter(self, workflow: Workflow, run: Run, command: DeadLetterTask, outputs: Outputs) -> None:
        """Keep the task as a dead letter, without its input if that cannot be read: its own error matters more."""
        dead_letters = self._store.dead_letters
        if command.evaluate:
            command = await self._with_input(workflow, run, command, outputs)
        if is_light(command.input):
            await dead_letters.send_task(run.run_id, run.workflow_id, command)
            return
        async with self.heavy:
            try:
                value = await outputs.whole(command.input, self._store.publisher.body_bytes_max)
                await dead_letters.send_task(run.run_id, run.workflow_id, replace(command, input=value))
            except (NotFound, TooLarge) as error:
                text = f"{command.error} (its input is not kept here: {error})"
                await dead_letters.send_task(run.run_id, run.workflow_id, replace(command, input=NULL, error=text))
