"""Checks of the workers: task types that nobody serves, and consumers that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.identifiers import quoted
from penstock.http.diagnosis.checks.facts import ServiceFacts, Trouble, WaitingQueue

NAMED_MAX = 100


def tasks_without_workers(facts: ServiceFacts) -> Iterator[Trouble]:
    unserved = [queue for queue in facts.queues if queue.waiting and not queue.workers and not queue.asked]
    for queue in unserved[:NAMED_MAX]:
        since = "" if queue.oldest_at is None else f", the oldest since {queue.oldest_at}"
        yield Trouble(
            f"{_tasks(queue.waiting)} of type {_kind(queue)} for a worker, and none serves that type{since}",
            "start a worker for it; `penstock worker list` shows those that are there",
        )


def consumers(facts: ServiceFacts) -> Iterator[Trouble]:
    for queue in facts.queues[:NAMED_MAX]:
        if queue.waiting and queue.workers and not queue.asked and not queue.in_hand:
            yield Trouble(
                f"{_tasks(queue.waiting)} of type {_kind(queue)}, and none of its registered workers ({queue.workers}) "
                "requests them, though none has a task in hand",
                "restart these workers: they are registered, but do not work (`penstock worker list`)",
            )
    for one in facts.unread[:NAMED_MAX]:
        messages = "1 message" if one.pending == 1 else f"{one.pending} messages"
        yield Trouble(
            f"consumer {quoted(one.name)} of stream {one.stream} has {messages} that nobody requests",
            "start the engine or program that it belongs to, or delete the consumer",
        )


def _tasks(number: int) -> str:
    return "1 task waits" if number == 1 else f"{number} tasks wait"


def _kind(queue: WaitingQueue) -> str:
    task, group = queue.kind
    return quoted(task) if group is None else f"{quoted(task)} (worker group {quoted(group)})"
