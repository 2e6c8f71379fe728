"""History events that cannot be applied, stored as dead letters, and such as need not be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from penstock.actors.runs.shared.mailbox import PartitionQueue, PendingEvent
from penstock.actors.runs.shared.run_metrics import RunMetrics
from penstock.broker.archive.archived_runs import is_archive_mark
from penstock.broker.records.imports import MARK_START
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.run.events import Event, Malformed, WorkflowCancelled, decode

AGAIN_S = 1.0  # after the broker has refused a dead letter

Send: TypeAlias = Callable[[], asyncio.Future[bytes]]

log = get_logger()


class EventDeadLetters:
    """Owned by a shard."""

    def __init__(self, store: Store, metrics: RunMetrics) -> None:
        self._store, self._metrics = store, metrics

    def keep(self, queue: PartitionQueue, run_id: str, event: PendingEvent, error: str) -> None:
        """Store the event as a dead letter. Until that is done, the event is not acknowledged."""
        delivery = event.delivery
        log.error("event_dead_lettered", run_id=run_id, seq=delivery.seq, error=error)
        self._metrics.dead_lettered += 1
        reached("shard.dead_lettering")
        queue.dead_letters.setdefault(delivery.seq, asyncio.get_running_loop().create_future())
        self._send(
            queue,
            delivery.seq,
            partial(self._store.dead_letters.send_history, run_id, delivery.seq, delivery.data, error),
        )

    def _send(self, queue: PartitionQueue, seq: int, send: Send) -> None:
        """Repeat it until the broker has it, or the partition has another owner, who gets the event again."""

        def answered(answer: asyncio.Future[bytes]) -> None:
            if answer.cancelled() or (error := answer.exception()) is None:
                _stored(queue, seq)
                return
            log.error("dead_letter_refused", seq=seq, error=str(error))
            if queue.owned:
                asyncio.get_running_loop().call_later(AGAIN_S, self._send, queue, seq, send)

        send().add_done_callback(answered)


def _stored(queue: PartitionQueue, seq: int) -> None:
    waiting = queue.dead_letters.pop(seq, None)
    if waiting is not None:
        waiting.set_result(None)


def is_expected(event: PendingEvent) -> bool:
    """Whether the event may come where no run is: the mark of an imported or archived run, or the cancellation of a
    child that now never starts."""
    if event.delivery.data.startswith(MARK_START) or is_archive_mark(event.delivery.data):
        return True
    try:
        return isinstance(decode(event.delivery.data), WorkflowCancelled)
    except Malformed:
        return False


def event_of(run_id: str, body: bytes) -> Event:
    """The event in a message of the run's history. Raises Malformed, also for one of another run; NeedsUpgrade."""
    event = decode(body)
    if event.run_id != run_id:
        raise Malformed(f"the event is of run {event.run_id[:64]}")
    return event
