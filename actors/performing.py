"""Carrying out commands: from orders of the engine to messages of the broker. Everything here is safe to do twice."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, assert_never

import structlog

from penstock.actors.approvals import approval_request, open_approval
from penstock.engine.commands import (
    AppendEvent,
    BindWorker,
    Command,
    DeadLetterTask,
    DispatchTask,
    OpenApproval,
    RequestApproval,
    SetTimer,
    WithdrawSticky,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.errors import Conflict, PenstockError, Unavailable
from penstock.engine.events import RunFailure, WorkflowFailed
from penstock.engine.state import Run
from penstock.engine.times import rfc3339

if TYPE_CHECKING:
    from penstock.actors.shard import Shard

log = structlog.get_logger()


async def perform(shard: Shard, run: Run, commands: list[Command], since: float) -> None:
    """Carry out the commands; returns when the broker has everything. `since` is when what caused them was received.

    A message that the broker refuses for good (too large, say) fails the run with a text that says so. Raises Unavailable.
    """
    try:
        for command in commands:
            if isinstance(command, DeadLetterTask):  # readable before the event that fails the run
                await shard.store.dead_letters.send_task(run.run_id, run.workflow_id, command)
        for answer in [await _order(shard, run, command, since) for command in commands]:
            if answer is not None:
                await answer
    except (Unavailable, Conflict):
        raise
    except PenstockError as error:
        log.error("command_refused", run_id=run.run_id, error=str(error))
        refused = RunFailure(error=f"the run cannot go on: {error}", resumes=run.resumes)
        await shard.store.history.send(WorkflowFailed(run_id=run.run_id, timestamp=rfc3339(time.time()), payload=refused))


async def _order(shard: Shard, run: Run, command: Command, since: float) -> asyncio.Future[bytes] | None:
    """Send one command; a future stands for an answer that is still to come."""
    match command:
        case DispatchTask():
            return shard.store.tasks.send(run.run_id, run.workflow_id, command)
        case AppendEvent():
            return shard.store.history.send(command.event)
        case SetTimer():
            shard.timers.arm(run.run_id, command, since)
        case WithdrawTimer():
            await shard.timers.withdraw(run.run_id, command.timer)
        case WithdrawTask():
            await shard.store.tasks.withdraw(run.run_id, command.task, command.group, command.worker)
        case WithdrawSticky():
            await shard.store.tasks.withdraw_sticky(run.run_id, command)
        case BindWorker():
            return shard.store.sticky_bindings.send(run.run_id, command.worker_id.encode())
        case RequestApproval():
            return shard.store.history.send(approval_request(run, command))
        case OpenApproval():
            await open_approval(shard.store, run, command)
        case DeadLetterTask():
            pass
        case _:
            assert_never(command)
    return None
