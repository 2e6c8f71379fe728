"""Dead letters: tasks that failed for good, and history messages that nobody could read."""

from __future__ import annotations

import asyncio

from penstock.broker import names
from penstock.broker.publisher import Publisher
from penstock.broker.tasks import payload
from penstock.engine.commands import DeadLetterTask, DispatchTask

TEXT_MAX = 1000


class DeadLetters:
    """A small face over the DEAD_LETTERS stream."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def send_task(self, run_id: str, workflow: str, command: DeadLetterTask) -> asyncio.Future[bytes]:
        """Keep a failed task with its error; the future ends when it is stored. A repeat within 2 min is stored once."""
        task = DispatchTask(
            command.step_id, command.task, command.attempt, command.iteration, command.input, command.metadata, command.group
        )
        headers = {
            names.MSG_ID: "dead." + names.task_message_id(run_id, command.step_id, command.iteration, command.attempt),
            "Dead-Error": _line(command.error),
            "Dead-Attempts": str(command.attempt),
            "Dead-Subject": names.task_subject(command.task, run_id, command.group),
            "Dead-Run": run_id,
            "Dead-Step": command.step_id,
        }
        subject = names.dead_subject(command.task, run_id, command.step_id)
        return self._publisher.send(subject, payload(run_id, workflow, task), headers)

    def send_history(self, run_id: str, seq: int, body: bytes, error: str) -> asyncio.Future[bytes]:
        """Keep a history message that is malformed, or that failed again and again; `seq` is its place in the stream."""
        headers = {names.MSG_ID: f"dead.history.{seq}", "Dead-Error": _line(error), "Dead-Run": run_id}
        return self._publisher.send(names.dead_history_subject(run_id), body, headers)


def _line(text: str) -> str:
    """One line of printable text: what a header may carry."""
    return "".join(c if c.isprintable() else " " for c in text[:TEXT_MAX]).strip() or "no text"
