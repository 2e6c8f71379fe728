"""Effects: carry out the commands of the engine by messages to the broker. Everything here is safe to do twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import assert_never, cast

from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.evaluation.evaluator import Evaluator
from penstock.actors.runs.approval_requests import approval_request, open_approval
from penstock.actors.runs.children import Children
from penstock.actors.runs.item_cache import ItemCache
from penstock.actors.runs.outputs import Outputs
from penstock.actors.runs.shared.lease import ShardLease
from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.actors.runs.timers import Timers
from penstock.actors.runs.waits.event_waits import EventWaits
from penstock.broker.store import Store
from penstock.broker.streams.history import RunEvent
from penstock.config.limits import KIB, MIB
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
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    ExpandPlan,
    OpenApproval,
    RemoveDeadLetters,
    RequestApproval,
    SetTimer,
    StartChild,
    StartFailureRun,
    StopWaiting,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import (
    NULL,
    RunFailure,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
)
from penstock.engine.run.execution.beginning import (
    DEFAULT,
    ITEM,
    about_completion,
    about_failure,
    begin_step,
    first_given,
    given_input,
    heavy,
    needed,
    received,
    refused,
)
from penstock.engine.run.execution.compensation import can_undo
from penstock.engine.run.execution.elements import ended_seq
from penstock.engine.run.execution.failure_runs import failure_input
from penstock.engine.run.execution.fragments import is_planned
from penstock.engine.run.execution.inputs import output_of
from penstock.engine.run.expansion import expanded
from penstock.engine.run.kinds.map import items_of, map_of
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.run.workflow import COMPENSATE, StepPlan, Workflow
from penstock.engine.times import rfc3339

LIGHT_BYTES_MAX = 64 * KIB
VALUE_BYTES_MAX = 64 * MIB  # of what an expression reads: an array of a map's outputs may be larger than a message
SENT_AT_ONCE = 256  # commands of one run, before others have their turn
HEAVY_AT_ONCE = 4  # messages with large payloads that are read, joined and not stored yet

log = get_logger()


class Effects:
    """Owned by a shard. `heavy` is held for each message with a large payload, from reading it until it is stored."""

    def __init__(self, store: Store, lease: ShardLease, timers: Timers, waits: EventWaits) -> None:
        self._store, self._lease, self._timers, self._waits = store, lease, timers, waits
        self.heavy = asyncio.Semaphore(HEAVY_AT_ONCE)
        self.evaluator = Evaluator()
        self._item_cache = ItemCache()
        self._children = Children(store, lease)

    async def perform(
        self, workflow: Workflow, run: Run, commands: list[Command], since: float, events: Sequence[PendingEvent] = ()
    ) -> None:
        """Carry out the commands that `events` caused. Return when the broker has stored everything.

        `since` is when the first of them was received (monotonic). What can never be sent (too large, or missing from
        the history) fails the run with a text that says so. Raises Unavailable for any other refusal: the run goes on
        once its cause is mended.
        """
        self._lease.check()
        workflow = expanded(workflow, run)
        publisher, outputs = self._store.publisher, Outputs(self._store, run.run_id, events)
        try:
            for command in commands:
                if isinstance(command, DeadLetterTask):  # readable before the event that fails the run
                    await self._dead_letter(workflow, run, command, outputs)
                    reached("dead_letter.stored")
            answers: list[asyncio.Future[bytes] | None] = []
            for number, command in enumerate(commands, 1):
                if publisher.full:
                    await publisher.room()
                    self._lease.check()
                elif not number % SENT_AT_ONCE:
                    await asyncio.sleep(0)
                    self._lease.check()
                if isinstance(command, WithdrawTask | WithdrawSticky):
                    await _stored(answers)  # it removes stored tasks, and an earlier command may have sent one
                    self._lease.check()
                answers.append(await self._send(workflow, run, command, since, outputs))
                reached("shard.command_sent")
            await _stored(answers)
        except (Unavailable, Conflict):
            raise
        except (TooLarge, NotFound, Invalid) as error:
            log.error("command_refused", run_id=run.run_id, error=str(error))
            refused = RunFailure(error=f"the run cannot go on: {error}", resumes=run.resumes)
            failed = WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(time.time()), payload=refused)
            await self._send_end(workflow, run, failed)
        except PenstockError as error:  # the removal of a message, for example: the fault is the broker's
            raise Unavailable(f"the broker refuses what the run needs: {error}") from error

    async def _send(
        self, workflow: Workflow, run: Run, command: Command, since: float, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Send one command. Returns a future for an answer that is still to come."""
        match command:
            case DispatchTask():
                if command.or_anyone and not await self._is_taken(command):
                    command = replace(command, worker=None)
                if _is_light(command.input):
                    return self._store.tasks.send(run.run_id, run.workflow_id, command)
                await self._dispatch(run, command, outputs)
            case BeginStep():
                return await self._begin(workflow, run, command, since, outputs)
            case StartChild():
                if _is_light(command.input):
                    return start(self._children.start(run, command), name="child", expected=PenstockError)
                async with self.heavy:
                    await self._children.start(run, command)
            case StartFailureRun():
                await self._after_failure(workflow, run, command, outputs)
            case CancelChild():
                return self._children.cancel(run, command)
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
                return self._waits.begin(run.run_id, command, plan is not None and bool(plan.later))
            case StopWaiting():
                return self._waits.end(run.run_id, command)
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
                value = failure_input(workflow, run, command, given)
                self._lease.check()
                await self._children.start_after_failure(run, workflow.on_failure.workflow, command.resumes, value)
        except (ExpressionFailed, NotFound, TooLarge) as error:
            log.error("failure_run_refused", run_id=run.run_id, error=str(error))

    async def _begin(
        self, workflow: Workflow, run: Run, command: BeginStep, since: float, outputs: Outputs
    ) -> asyncio.Future[bytes] | None:
        """Evaluate the step's expressions, and carry out what follows. A step begins with one command."""
        answer = None
        try:
            for following in await self._following(workflow, run, command, outputs):
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
        payloads = await self._given(workflow, run, plan, outputs)
        ready = await self._ready(run, plan, payloads)
        return begin_step(workflow, run, command, payloads, ready, self._store.history.age_s_max)

    async def _ready(self, run: Run, plan: StepPlan, payloads: Mapping[str, Raw]) -> dict[str, Raw | ExpressionFailed]:
        """Results of those of the step's expressions that may take long: they are evaluated outside this event loop."""
        results: dict[str, Raw | ExpressionFailed] = {}
        for path, (what, values) in heavy(plan, run, payloads).items():
            try:
                results[path] = Raw(await self.evaluator.json(what, values))
            except ExpressionFailed as error:
                results[path] = error
        if results:
            self._lease.check()
        return results

    async def _given(self, workflow: Workflow, run: Run, plan: StepPlan, outputs: Outputs) -> dict[str, Raw]:
        """What beginning the execution reads: also the element that it is for, or what became of the step that it
        handles."""
        payloads = await self._payloads(run, plan, outputs)
        if plan.item is not None:
            items = await self._items(workflow, run, map_of(workflow, plan), outputs)
            payloads[ITEM] = items[plan.item]
        if plan.handles is not None:
            payloads[DEFAULT] = await self._about(workflow, run, plan, plan.handles, outputs)
        return payloads

    async def _about(self, workflow: Workflow, run: Run, handler: StepPlan, step_id: str, outputs: Outputs) -> Raw:
        """The default input of what handles that step."""
        plan, undoes = workflow.plan_of(step_id), handler.kind.name == COMPENSATE
        assert plan is not None, "the step is there"
        run = first_given(run, plan) if undoes else run
        value = received(workflow, run, plan, await self._given(workflow, run, plan, outputs))
        output = await self._output(run, step_id, outputs) if undoes else NULL
        if not (_is_light(value) and _is_light(output)):
            async with self.heavy:
                value = await outputs.whole(value, VALUE_BYTES_MAX)
                output = await outputs.whole(output, VALUE_BYTES_MAX)
                self._lease.check()
        if undoes:
            reached("compensation.read")
        given, returned = cast(Raw, value), cast(Raw, output)
        return about_completion(given, returned) if undoes else about_failure(run, step_id, given)

    async def _output(self, run: Run, step_id: str, outputs: Outputs) -> Value:
        """The output of a step, or of an element of a map, which only the history has."""
        place = run.element(step_id)
        return output_of(run, step_id) if place is None else await outputs.of_event(ended_seq(run, *place))

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
        return self._store.history.send(event)

    async def _payloads(self, run: Run, plan: StepPlan, outputs: Outputs) -> dict[str, Raw]:
        """What beginning the step reads, as JSON."""
        wanted = needed(run, plan)
        if all(map(_is_light, wanted.values())):
            return cast(dict[str, Raw], wanted)
        async with self.heavy:
            try:
                payloads = {name: await outputs.whole(value, VALUE_BYTES_MAX) for name, value in wanted.items()}
            except (NotFound, TooLarge) as error:
                raise type(error)(f'step "{plan.id}" cannot be given its input: {error}') from error
            self._lease.check()
            return payloads

    async def _items(self, workflow: Workflow, run: Run, whole: StepPlan, outputs: Outputs) -> list[Raw]:
        """The elements of a map, which are worked out once for many."""
        key = (run.run_id, whole.id, run.step(whole.id).attempts)
        found = self._item_cache.get(key)
        if found is None:
            payloads = await self._payloads(run, whole, outputs)
            found = items_of(run, whole, payloads, await self._ready(run, whole, payloads))
            self._item_cache.put(key, found)
        return found

    async def _is_taken(self, command: DispatchTask) -> bool:
        """Whether the task's worker accepts tasks of this type. It may have to ask the broker."""
        assert command.worker is not None
        sticky_tasks = self._store.sticky_tasks
        known = sticky_tasks.known_to_take(command.task, command.worker)
        if known is None:
            known = await sticky_tasks.takes(command.task, command.worker)
            self._lease.check()
        return known

    async def _dispatch(self, run: Run, command: DispatchTask, outputs: Outputs) -> None:
        async with self.heavy:
            try:
                value = await outputs.whole(command.input, self._store.publisher.body_bytes_max)
                self._lease.check()
                await self._store.tasks.send(run.run_id, run.workflow_id, replace(command, input=value))
            except (NotFound, TooLarge) as error:
                raise type(error)(f'step "{command.step_id}" cannot be given its input: {error}') from error

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
            case _:
                return history.send_end(event, run.seq)

    async def _with_input(
        self, workflow: Workflow, run: Run, command: DeadLetterTask, outputs: Outputs
    ) -> DeadLetterTask:
        """The dead letter with the input that the task was given."""
        plan = workflow.plan_of(command.step_id)
        assert plan is not None, "the step is there"
        try:
            payloads = await self._given(workflow, run, plan, outputs)
            return replace(command, input=given_input(workflow, run, plan, payloads))
        except (ExpressionFailed, NotFound, TooLarge) as error:
            return replace(command, error=f"{command.error} (its input is not kept here: {error})")

    async def _dead_letter(self, workflow: Workflow, run: Run, command: DeadLetterTask, outputs: Outputs) -> None:
        """Keep the task as a dead letter, without its input if that cannot be read: its own error matters more."""
        dead_letters = self._store.dead_letters
        if command.evaluate:
            command = await self._with_input(workflow, run, command, outputs)
        if _is_light(command.input):
            await dead_letters.send_task(run.run_id, run.workflow_id, command)
            return
        async with self.heavy:
            try:
                value = await outputs.whole(command.input, self._store.publisher.body_bytes_max)
                await dead_letters.send_task(run.run_id, run.workflow_id, replace(command, input=value))
            except (NotFound, TooLarge) as error:
                text = f"{command.error} (its input is not kept here: {error})"
                await dead_letters.send_task(run.run_id, run.workflow_id, replace(command, input=NULL, error=text))


async def _stored(answers: list[asyncio.Future[bytes] | None]) -> None:
    """Return once the broker has stored all that was sent so far, and empty the list."""
    for answer in answers:
        if answer is not None:
            await answer
            reached("shard.command_stored")
    answers.clear()


def _is_light(value: Value) -> bool:
    """Whether its bytes are in memory, and so few that any number of such messages may be in flight."""
    return isinstance(value, Raw) and memoryview(value).nbytes <= LIGHT_BYTES_MAX
