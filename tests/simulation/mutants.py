"""Bugs that are put into the shell on purpose: a simulation that does not find them would find nothing else either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import orjson
from msgspec.structs import replace

from penstock.actors.ownership import claims
from penstock.actors.ownership.claims import Claims
from penstock.actors.runs import loading, run_actor, timers
from penstock.actors.runs.effects import Effects
from penstock.actors.runs.loading import LoadedRun, load
from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import ShardLease
from penstock.actors.runs.shared.mailbox import PartitionQueue, PendingEvent
from penstock.actors.runs.timers import Timers
from penstock.broker import names
from penstock.broker.nats.batch import Batches, Message
from penstock.broker.nats.buckets import Bucket
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.nats.pull import Pull
from penstock.broker.records.owners import Claimed, Handled, View
from penstock.broker.store import Store
from penstock.broker.streams.history import History
from penstock.engine.errors import PenstockError
from penstock.engine.run import advance
from penstock.engine.run.commands import Command, DeadLetterTask, SetTimer
from penstock.engine.run.events import Event, Record
from penstock.engine.run.execution import steps
from penstock.engine.run.kinds import http, normal
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339
from tests.simulation import (
    mutants_of_archiving,
    mutants_of_kinds,
    mutants_of_limits,
    mutants_of_operating,
    mutants_of_runs,
    mutants_of_undoing,
)
from tests.simulation.clock import TIME
from tests.simulation.mutants_of_kinds import Patch


def _acknowledges_what_is_not_written() -> Patch:
    def acknowledgeable(queue: PartitionQueue, before: float) -> PendingEvent | None:
        last = queue.handled[-1].last if queue.handled else None
        queue.handled.clear()
        while queue.events:
            last = queue.events.popleft()
        return last

    return PartitionQueue, "acknowledgeable", acknowledgeable


def _takes_any_snapshot_for_the_state_before_the_last_event() -> Patch:
    async def last_only(store: Store, run: Run | None, last: Stored) -> list[Stored] | None:
        return None if run is None else [last]

    return loading, "_with_known", last_only


def _takes_every_worker_for_one_that_takes_all_types() -> Patch:
    async def taken(effects: Effects, command: Any) -> bool:
        return True

    return Effects, "_is_taken", taken


def _takes_a_secret_for_text() -> Patch:
    def sent(plan: Any, values: Any) -> dict[str, str]:
        return {name: http.as_text(value) for name, value in orjson.loads(bytes(values[http.HEADERS])).items()}

    return http, "_sent_headers", sent


def _forgets_what_was_ordered() -> Patch:
    """After a crash, what the events beyond the snapshot had ordered is not done again."""

    async def forgetful(store: Store, run_id: str, **how: Any) -> LoadedRun:
        return replace(await load(store, run_id, **how), due=())

    return run_actor, "load", forgetful


def _forgets_the_timers_of_a_former_owner() -> Patch:
    resume = RunActor._resume

    async def forgetful(actor: RunActor, loaded: LoadedRun, since: float, repeat: bool) -> None:
        await resume(actor, loaded, since, False)

    return RunActor, "_resume", forgetful


def _lets_go_of_timers_too_early() -> Patch:
    hand_over = Timers._hand_over

    async def early(timers: Timers, armed: Any) -> None:
        timers._release(armed)
        await hand_over(timers, armed)

    return Timers, "_hand_over", early


def _tries_only_once_to_hand_a_timer_over() -> Patch:
    async def attempt(timers: Timers, armed: Any, act: Any) -> None:
        with suppress(PenstockError):
            await act(armed)

    return Timers, "_attempt", attempt


def _hands_timers_of_one_name_over_at_once() -> Patch:
    return Timers, "_alone", lambda timers, armed: nullcontext()


def _fires_too_early() -> Patch:
    arm = Timers.arm

    def early(timers: Timers, run_id: str, command: SetTimer, since: float) -> None:
        arm(timers, run_id, replace(command, due=command.due - 0.5), since)

    return Timers, "arm", early


def _goes_by_the_clock_of_its_host() -> Patch:
    return BrokerClock, "now", lambda clock: TIME.time()


def _withdraws_what_it_has_handed_over() -> Patch:
    """Two tasks give one timer to the broker, and the second one takes it for withdrawn."""

    async def confused(timers: Timers, armed: Any) -> None:
        seq = await timers._schedule(armed)
        timers.learn(0, seq)
        timers.learn(1, seq)
        if armed.live:
            timers._release(armed)
        else:
            await timers.withdraw(armed.run_id, armed.command.timer)

    return Timers, "_hand_over", confused


def _hands_over_one_event_too_many() -> Patch:
    hand_over = Shard.hand_over

    async def generous(shard: Shard, number: int) -> int:
        return await hand_over(shard, number) + 1

    return Shard, "hand_over", generous


def _pulls_on_after_its_end() -> Patch:
    async def close(pull: Pull) -> None:
        if pull._broker.connected:
            await pull._stop()

    return Pull, "_close", close


def _starts_many_one_by_one() -> Patch:
    async def publish(batches: Batches, messages: Sequence[Message]) -> None:
        from penstock.broker.nats.batch import publish_batch

        for message in messages:
            await publish_batch(batches._broker, [message])

    return Batches, "publish", publish


def _decides_whatever_has_happened() -> Patch:
    async def append(history: History, event: Event, last_seq: int) -> bool:
        await history.append(event, message_id=TIME.uuid4().hex)
        return True

    return History, "append_next", append


def _keeps_no_dead_letters() -> Patch:
    perform = Effects.perform

    async def careless(effects: Effects, workflow: Any, run: Any, commands: list[Command], *rest: Any) -> None:
        kept = [command for command in commands if not isinstance(command, DeadLetterTask)]
        await perform(effects, workflow, run, kept, *rest)

    return Effects, "perform", careless


def _does_not_wait_for_answers() -> Patch:
    """What is published counts as stored, so a crash loses it."""

    def send(
        history: History, event: Event, headers: dict[str, str], wait_if_full: bool = True
    ) -> asyncio.Future[bytes]:
        asyncio.get_running_loop().call_later(0.5, real, history, event, headers, wait_if_full)
        done = asyncio.get_running_loop().create_future()
        done.set_result(b'{"seq":1}')
        return done

    real = History._send
    return History, "_send", send


def _does_not_look_at_its_lease() -> Patch:
    return ShardLease, "check", lambda lease: None


def _does_not_end_with_its_lease() -> Patch:
    def end(lease: ShardLease) -> None:
        lease._until = 0.0

    return ShardLease, "end", end


def _writes_old_states_over_newer_ones() -> Patch:
    send = Bucket.send

    def blind(bucket: Bucket, key: str, value: bytes, expect: int | None = None) -> asyncio.Future[bytes]:
        return send(bucket, key, value, None if bucket._prefix == f"$KV.{names.RUNS}." else expect)

    return Bucket, "send", blind


def _sets_timers_over_those_of_a_later_owner() -> Patch:
    async def schedule(own: Timers, armed: Any) -> int:
        own._lease.check()
        headers = {
            SCHEDULE: f"@at {rfc3339(armed.command.due)}",
            SCHEDULE_TARGET: names.history_subject(armed.run_id),
        }
        subject = names.schedule_subject(armed.run_id, armed.command.timer)
        return ack_seq(await own._store.publisher.send(subject, timers._body(armed), headers))

    return Timers, "_schedule", schedule


def _goes_on_with_the_consumer_of_a_former_owner() -> Patch:
    return Claims, "next_common_consumer", lambda claims, view: names.common_consumer(1)


def _goes_on_behind_what_a_former_owners_consumer_says() -> Patch:
    take_by = Claims._take_by

    async def behind(own: Claims, number: int, view: View, consumer: str) -> Claimed:
        former = view.claims[number].claim
        floor = await own._store.consumers.floor(former.consumer) if former.consumer else None
        if floor is not None:
            view.handled[number] = Handled(max(floor + 1, view.handled_before(number, own.log)), own.log)  # type: ignore[index]
        return await take_by(own, number, view, consumer)

    return Claims, "_take_by", behind


def _hands_partitions_over_with_the_consumer_of_all() -> Patch:
    return claims, "is_common", lambda claimed: False


def _notes_one_event_too_many() -> Patch:
    def handled_before(shard: Shard) -> dict[int, int]:
        return {number: queue.start + (1 if queue.events else 0) for number, queue in shard._queues.items()}

    return Shard, "handled_before", property(handled_before)


def _has_pauses_run_down_timeouts() -> Patch:
    """The engine does not listen when a worker puts its task aside."""
    return normal, "paused", lambda run, record, event, plan: (run, [])


def _takes_outputs_of_any_size() -> Patch:
    return steps, "too_large", lambda what, payload: None


def _does_not_see_the_start_in_an_answer() -> Patch:
    return advance, "ANSWERS", frozenset()


def _has_executions_begin_with_their_answers() -> Patch:
    start_in = advance.start_in

    def late(record: Record) -> Record:
        start = start_in(record)
        return replace(start, event=replace(start.event, timestamp=record.event.timestamp))

    return advance, "start_in", late


def _takes_answers_after_the_timeout() -> Patch:
    return advance, "in_time", lambda workflow, before, start, record: record


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _acknowledges_what_is_not_written,
        _takes_any_snapshot_for_the_state_before_the_last_event,
        _forgets_what_was_ordered,
        _takes_a_secret_for_text,
        _takes_every_worker_for_one_that_takes_all_types,
        _forgets_the_timers_of_a_former_owner,
        _lets_go_of_timers_too_early,
        _tries_only_once_to_hand_a_timer_over,
        _hands_timers_of_one_name_over_at_once,
        _fires_too_early,
        _goes_by_the_clock_of_its_host,
        _withdraws_what_it_has_handed_over,
        _hands_over_one_event_too_many,
        _pulls_on_after_its_end,
        _starts_many_one_by_one,
        _decides_whatever_has_happened,
        _keeps_no_dead_letters,
        _does_not_wait_for_answers,
        _does_not_look_at_its_lease,
        _does_not_end_with_its_lease,
        _writes_old_states_over_newer_ones,
        _sets_timers_over_those_of_a_later_owner,
        _goes_on_with_the_consumer_of_a_former_owner,
        _goes_on_behind_what_a_former_owners_consumer_says,
        _hands_partitions_over_with_the_consumer_of_all,
        _notes_one_event_too_many,
        _has_pauses_run_down_timeouts,
        _takes_outputs_of_any_size,
        _does_not_see_the_start_in_an_answer,
        _has_executions_begin_with_their_answers,
        _takes_answers_after_the_timeout,
    )
}
MUTANTS |= mutants_of_kinds.MUTANTS | mutants_of_undoing.MUTANTS
MUTANTS |= mutants_of_operating.MUTANTS | mutants_of_runs.MUTANTS | mutants_of_limits.MUTANTS
MUTANTS |= mutants_of_archiving.MUTANTS


@contextmanager
def mutated(*bugs: str) -> Iterator[None]:
    """For the time of the block, the shell has these bugs."""
    with ExitStack() as stack:
        for bug in bugs:
            where, attribute, value = MUTANTS[bug]()
            stack.enter_context(patch.object(where, attribute, value))
        yield
