"""Carrying out commands: from orders of the engine to messages of the broker. Everything here is safe to do twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.runs.approval_requests import approval_request, open_approval
from penstock.actors.runs.mailbox import Mail
from penstock.actors.runs.outputs import Outputs
from penstock.config.limits import KIB
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Invalid, NotFound, PenstockError, TooLarge, Unavailable
from penstock.engine.run.commands import (
    AppendEvent,
    BindWorker,
    Command,
    CompleteRun,
    DeadLetterTask,
    DispatchTask,
    OpenApproval,
    RemoveLetters,
    RequestApproval,
    SetTimer,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.events import NULL, RunFailure, WorkflowCompleted, WorkflowFailed
from penstock.engine.run.payloads import Value
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339

if TYPE_CHECKING:
    from penstock.actors.runs.shard import Shard

LIGHT_BYTES_MAX = 64 * KIB

log = get_logger()


async def perform(shard: Shard, run: Run, commands: list[Command], since: float, mail: Sequence[Mail] = ()) -> None:
    """Carry out the commands, which `mail` has caused; returns when the broker has everything.

    `since` is when that was received. What can never be sent (too large, or not there any more) fails the run with a
    text that says so. Raises Unavailable for any other refusal too: once its cause is mended, the run goes on.
    """
    shard.lease.check()
    outputs = Outputs(shard.store, run.run_id, mail)
    try:
        for command in commands:
            if isinstance(command, DeadLetterTask):  # readable before the event that fails the run
                await _bury(shard, run, command, outputs)
                reached("dead_letter.stored")
        answers: list[asyncio.Future[bytes] | None] = []
        for command in commands:
            if shard.store.publisher.full:
                await shard.store.publisher.room()
                shard.lease.check()
            if isinstance(command, WithdrawTask | WithdrawSticky):
                await _stored(
                    answers
                )  # it takes back what is queued, and a command just before it may have queued something
                shard.lease.check()
            answers.append(await _order(shard, run, command, since, outputs))
            reached("shard.command_sent")
        await _stored(answers)
    except (Unavailable, Conflict):
        raise
    except (TooLarge, NotFound, Invalid) as error:
        log.error("command_refused", run_id=run.run_id, error=str(error))
        refused = RunFailure(error=f"the run cannot go on: {error}", resumes=run.resumes)
        failed = WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(time.time()), payload=refused)
        await _send_end(shard, run, failed)
    except PenstockError as error:  # of a removal, say: that is the broker's trouble, and no fault of the run's
        raise Unavailable(f"the broker refuses what the run needs: {error}") from error


async def _stored(answers: list[asyncio.Future[bytes] | None]) -> None:
    """Return once the broker has all that was sent so far; it is not waited for again."""
    for answer in answers:
        if answer is not None:
            await answer
            reached("shard.command_stored")
    answers.clear()


async def _order(
    shard: Shard, run: Run, command: Command, since: float, outputs: Outputs
) -> asyncio.Future[bytes] | None:
    """Send one command; a future stands for an answer that is still to come."""
    match command:
        case DispatchTask():
            if command.or_anyone and not await _is_taken(shard, command):
                command = replace(command, worker=None)
            if _is_light(command.input):
                return shard.store.tasks.send(run.run_id, run.workflow_id, command)
            await _dispatch(shard, run, command, outputs)
        case CompleteRun():
            await _complete(shard, run, command, outputs)
        case AppendEvent(event=WorkflowCompleted() | WorkflowFailed() as event):
            return _send_end(shard, run, event)
        case AppendEvent():
            return shard.store.history.send(command.event)
        case SetTimer():
            shard.timers.arm(run.run_id, command, since)
        case WithdrawTimer():
            await shard.timers.withdraw(run.run_id, command.timer)
        case WithdrawTask():
            await shard.store.tasks.withdraw(run.run_id, command.task, command.group, command.worker, shard.lease.check)
        case WithdrawSticky():
            await shard.store.tasks.withdraw_sticky(run.run_id, command, shard.lease.check)
        case BindWorker():
            return shard.store.sticky_bindings.send(run.run_id, command.worker_id.encode())
        case RequestApproval():
            return shard.store.history.send(approval_request(run, command))
        case OpenApproval():
            await open_approval(shard.store, run, command)
        case RemoveLetters():
            await shard.store.dead_letters.remove_task(run.run_id, command.step_id, command.task, command.up_to_seq)
        case DeadLetterTask():
            pass
        case _:
            assert_never(command)
    return None


async def _is_taken(shard: Shard, command: DispatchTask) -> bool:
    """Whether the worker that the task is for takes tasks of its type. To ask the broker may take a while."""
    assert command.worker is not None
    sticky_tasks = shard.store.sticky_tasks
    known = sticky_tasks.known_to_take(command.task, command.worker)
    if known is None:
        known = await sticky_tasks.takes(command.task, command.worker)
        shard.lease.check()
    return known


def _is_light(value: Value) -> bool:
    """Its bytes are here, and so few that any number of them may be on their way."""
    return isinstance(value, Raw) and memoryview(value).nbytes <= LIGHT_BYTES_MAX


async def _dispatch(shard: Shard, run: Run, command: DispatchTask, outputs: Outputs) -> None:
    async with shard.heavy:
        try:
            value = await outputs.whole(command.input, shard.store.publisher.body_bytes_max)
            shard.lease.check()
            await shard.store.tasks.send(run.run_id, run.workflow_id, replace(command, input=value))
        except (NotFound, TooLarge) as error:
            raise type(error)(f'step "{command.step_id}" cannot be given its input: {error}') from error


async def _complete(shard: Shard, run: Run, command: CompleteRun, outputs: Outputs) -> None:
    async with shard.heavy:
        value = await outputs.whole(command.output, shard.store.publisher.body_bytes_max)
        shard.lease.check()
        completed = replace(command.event, payload=replace(command.event.payload, output=value))
        await _send_end(shard, run, completed)


def _send_end(shard: Shard, run: Run, event: WorkflowCompleted | WorkflowFailed) -> asyncio.Future[bytes]:
    """Readers may believe an end of the run as it is now. One of before its last resumption is for `advance` to
    refuse."""
    history = shard.store.history
    return history.send_end(event, run.seq) if event.payload.resumes == run.resumes else history.send(event)


async def _bury(shard: Shard, run: Run, command: DeadLetterTask, outputs: Outputs) -> None:
    """Keep the task, if need be without its input: its failure must not be hidden by another."""
    letters = shard.store.dead_letters
    if _is_light(command.input):
        await letters.send_task(run.run_id, run.workflow_id, command)
        return
    async with shard.heavy:
        try:
            value = await outputs.whole(command.input, shard.store.publisher.body_bytes_max)
            await letters.send_task(run.run_id, run.workflow_id, replace(command, input=value))
        except (NotFound, TooLarge) as error:
            text = f"{command.error} (its input is not kept here: {error})"
            await letters.send_task(run.run_id, run.workflow_id, replace(command, input=NULL, error=text))
