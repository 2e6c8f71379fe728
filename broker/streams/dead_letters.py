"""Dead letters: tasks that failed for good, history messages that cannot be read, and trigger events that could start
no run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from msgspec import Struct

from penstock.broker import message_ids, names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Within
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher
from penstock.broker.streams.tasks import payload
from penstock.config.limits import KIB, PAYLOAD_BYTES_MAX
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.run.commands import DeadLetterTask, DispatchTask

TEXT_BYTES_MAX = 2000
KEEP_S_MAX = 5.0
TRIGGER_EVENT_BYTES_MAX = PAYLOAD_BYTES_MAX - 8 * KIB  # every broker accepts this, headers included
SCANNED_MAX = 20_000  # dead letters read for one page, when few of them match

HEADER = re.compile(rb"\r\n(Dead-[A-Za-z]+): ?([^\r]*)")


class DeadLetter(Struct, frozen=True, omit_defaults=True):
    """One dead letter. `kind` is task, history or trigger, and decides which fields are set. `at` is when it was
    stored, in s since the epoch; `subject` the subject in its headers; `attempts` counts executions."""

    seq: int
    at: float
    kind: str
    error: str
    subject: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    task: str | None = None
    attempts: int | None = None
    trigger: str | None = None


class DeadLetterPage(Struct, frozen=True):
    """Dead letters, newest first, perhaps none; `next` is the `before` of the next page, None at the end."""

    dead_letters: list[DeadLetter]
    next: int | None


class DeadLetters:
    """The DEAD_LETTERS stream."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    async def page(
        self, run_id: str | None = None, task: str | None = None, limit: int = 100, before: int | None = None
    ) -> DeadLetterPage:
        """Up to `limit` dead letters, of one run, of one task type, with a sequence below `before`. Raises Unavailable.

        At most SCANNED_MAX dead letters are read for a page: it may be short, or empty, and still have a next one.
        """
        first, last = await self._ends()
        high = last if before is None else min(last, before - 1)
        found: list[DeadLetter] = []
        window, left = limit, SCANNED_MAX
        while high >= first and left > 0 and len(found) < limit:
            low = max(first, high - min(window, left) + 1)
            found += await self._matching(
                low, high, task, lambda letter: run_id in (None, letter.run_id) and task in (None, letter.task)
            )
            left -= high - low + 1
            high, window = low - 1, window * 2
        if len(found) > limit:
            found, high = found[:limit], found[limit - 1].seq - 1
        return DeadLetterPage(found, high + 1 if high >= first else None)

    async def get(self, seq: int) -> tuple[DeadLetter, bytes]:
        """The dead letter with this sequence, and its body. Raises NotFound, Unavailable."""
        stored = await self._reader.leaders.at(names.DEAD, seq)
        if stored is None:
            raise NotFound(f"dead letter {seq} does not exist")
        return _decoded(stored), stored.data

    async def discard(self, seq: int) -> None:
        """Remove the dead letter with this sequence, for good. Raises NotFound, Unavailable."""
        try:
            there = await self._broker.remove(f"STREAM.MSG.DELETE.{names.DEAD}", {"seq": seq, "no_erase": True})
        except ApiError as error:
            raise Unavailable(f"broker: dead letter {seq} could not be removed: {error}") from error
        if not there:
            raise NotFound(f"dead letter {seq} does not exist")

    async def last_seq(self) -> int:
        """The sequence of the newest dead letter that was ever stored."""
        return (await self._ends())[1]

    async def remove_task(self, run_id: str, step_id: str, task: str, up_to_seq: int) -> None:
        """Remove the dead letters of a step with a sequence up to `up_to_seq`."""
        subject = names.dead_subject(task, run_id, step_id)
        await self._broker.remove(f"STREAM.PURGE.{names.DEAD}", {"filter": subject, "seq": up_to_seq + 1})

    async def _ends(self) -> tuple[int, int]:
        state = (await self._broker.api(f"STREAM.INFO.{names.DEAD}"))["state"]
        return int(state["first_seq"]), int(state["last_seq"])

    async def _matching(
        self, low: int, high: int, task: str | None, matches: Callable[[DeadLetter], bool]
    ) -> list[DeadLetter]:
        stored = self._reader.between(names.DEAD, names.dead_filter(task), low, high)
        found = [letter async for one in stored if matches(letter := _decoded(one))]
        return found[::-1]

    def send_task(self, run_id: str, workflow: str, command: DeadLetterTask) -> asyncio.Future[bytes]:
        """Store a failed task with its error; the future ends when it is stored. A repeat within 2 min is stored
        once."""
        task = DispatchTask(
            command.step_id,
            command.task,
            command.attempt,
            command.iteration,
            command.input,
            command.metadata,
            command.group,
        )
        headers = {
            MSG_ID: "dead." + message_ids.of_task(run_id, command.step_id, command.iteration, command.attempt),
            "Dead-Error": _line(command.error),
            "Dead-Attempts": str(command.attempt),
            "Dead-Subject": names.task_subject(command.task, run_id, command.group),
            "Dead-Run": run_id,
            "Dead-Step": command.step_id,
        }
        subject = names.dead_subject(command.task, run_id, command.step_id)
        return self._publisher.send(subject, payload(run_id, workflow, task), headers)

    def send_history(self, run_id: str, seq: int, body: bytes, error: str) -> asyncio.Future[bytes]:
        """Store a history message that is malformed, or that failed repeatedly; `seq` is its sequence in the stream.

        It is shortened when it leaves no room for a dead letter's headers.
        """
        most = self._publisher.body_bytes_max
        if len(body) > most:
            body, error = body[:most], f"{error} (of its {len(body)} bytes, the first {most} are kept here)"
        headers = {MSG_ID: f"dead.history.{seq}", "Dead-Error": _line(error), "Dead-Run": run_id}
        return self._publisher.send(names.dead_history_subject(run_id), body, headers)

    async def store_trigger_event(self, trigger: str, subject: str, body: bytes, run_id: str, error: str) -> None:
        """Store a trigger event that could start no run; it is stored when this returns. Raises Unavailable.

        `run_id`, of the run that it would have started, identifies the event: a repeat within 2 min is stored once. A
        body that is larger than any run's input is shortened.
        """
        headers = {
            MSG_ID: f"dead.trigger.{run_id}",
            "Dead-Error": _line(error),
            "Dead-Subject": subject,
            "Dead-Trigger": trigger,
        }
        unknown = "the broker gave no answer in time; whether the dead letter was stored is unknown"
        async with Within(KEEP_S_MAX, unknown):
            await self._publisher.send(
                names.dead_trigger_subject(trigger), body[:TRIGGER_EVENT_BYTES_MAX], headers, wait_if_full=False
            )


def _line(text: str) -> str:
    """One line of printable text, no longer than a header may be."""
    line = "".join(c if c.isprintable() else " " for c in text[:TEXT_BYTES_MAX])
    return line.encode()[:TEXT_BYTES_MAX].decode(errors="ignore").strip() or "no text"


def _decoded(stored: Stored) -> DeadLetter:
    """A dead letter from its headers; one that another program has stored may lack some of them."""
    fields = {name.decode(): value.decode(errors="replace") for name, value in HEADER.findall(stored.headers)}
    error, subject, run_id = fields.get("Dead-Error", ""), fields.get("Dead-Subject"), fields.get("Dead-Run")
    if "Dead-Trigger" in fields:
        return DeadLetter(stored.seq, stored.at, "trigger", error, subject, trigger=fields["Dead-Trigger"])
    if run_id is None or "Dead-Step" not in fields:
        return DeadLetter(stored.seq, stored.at, "history", error, subject, run_id)
    step_id, attempts = fields["Dead-Step"], fields.get("Dead-Attempts", "")
    task = stored.subject.removeprefix("dead.").removesuffix(f".{run_id}.{step_id}")
    return DeadLetter(
        stored.seq,
        stored.at,
        "task",
        error,
        subject,
        run_id,
        step_id,
        task,
        int(attempts) if attempts.isdigit() else None,
    )
