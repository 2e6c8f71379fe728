"""The history of runs: append events, read them back, follow them live, consume a partition of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from penstock.broker import message_ids, names
from penstock.broker.archive.archive import Archive
from penstock.broker.archive.archived_runs import ArchivedRun
from penstock.broker.archive.whole_histories import archived_part, whole_pages
from penstock.broker.far_events import pages_to_far
from penstock.broker.history_messages import is_among, is_child, message, taking_back
from penstock.broker.nats.batch import BATCH_COMMIT, BATCH_ID, Batches, Message
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code, within
from penstock.broker.nats.headers import EXPECT_SEQ, MSG_ID, SCHEDULE, SCHEDULE_TARGET, TTL
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.broker.nats.pull import Delivery, Pull, open_pull
from penstock.broker.nats.tail import Tail, open_tail
from penstock.broker.streams.watch import Begin, RunEvents, Wakes, batches, watch
from penstock.config.limits import PULL_BYTES_MAX
from penstock.engine.errors import Conflict
from penstock.engine.run.events import (
    Event,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowRemoved,
    WorkflowScheduled,
    WorkflowStarted,
    encode,
)

PUBLISH_DEADLINE_S = 5.0
NO_ANSWER = "the broker gave no answer in time; whether the event was stored is unknown"
FOLLOW_HEARTBEAT_S = 2
FOLLOW_AGAIN_S = 0.1
MOVED_EVENTS_MAX = 5000  # more are not read in order to know whose they are
REMOVAL_TTL = "1h"  # in which every reader of the log sees that the run was removed
LEADER_S = 2.5  # requests while a cluster has no leader are never answered: repeat them soon


RunEvent: TypeAlias = WorkflowCompleted | WorkflowFailed | WorkflowCancelled | WorkflowCompensating
"""What only a run's owner knows for sure."""


class Tip(NamedTuple):
    """The end of the history stream. `created` identifies this stream among others of its name; `seq` is its last
    sequence, `first` the first that is still stored, and `at` the broker's time, in s since the epoch."""

    created: str
    seq: int
    at: float
    first: int = 1


class History:
    """The WORKFLOW_HISTORY stream, and what the archive has of runs that ended long ago. Connection, publisher, reader
    and archive belong to the caller. `age_s_max` is how long it keeps events; None: without a limit."""

    def __init__(
        self,
        broker: Broker,
        publisher: Publisher,
        reader: DirectReader,
        age_s_max: float | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.age_s_max = age_s_max
        self.archive = archive or Archive(broker, publisher, reader, None)
        self._broker, self._publisher, self._reader = broker, publisher, reader
        self._batches = Batches(broker)
        self.keeps_all = False  # whether nothing is dropped for its age or size, as far as is known
        self.stored = 0  # the last sequence that was stored by this object: its users must read at least that far

    def send(self, event: Event, message_id: str | None = None, *, wait_if_full: bool = True) -> asyncio.Future[bytes]:
        """Append without waiting; the future ends when the event is stored. A repeat within 5 s is stored once.
        `wait_if_full` as in `Publisher.send`."""
        return self._send(event, {MSG_ID: message_id or message_ids.of_event(event)}, wait_if_full)

    def send_end(
        self, event: RunEvent, folded_seq: int, message_id: str | None = None, state: str | None = None
    ) -> asyncio.Future[bytes]:
        """As `send`, by the run's owner, which has folded the run's events up to `folded_seq`: readers need not fold
        them again. `message_id` replaces its usual id. `state`, in one line, is the snapshot of the run at that event:
        with it, the future raises Conflict when something was stored for the run since."""
        headers = {MSG_ID: message_id or message_ids.of_event(event), names.OWNER_SEQ: str(folded_seq)}
        if state is not None:
            headers[EXPECT_SEQ], headers[names.OWNER_STATE] = str(folded_seq), state
        return self._send(event, headers)

    def _send(self, event: Event, headers: dict[str, str], wait_if_full: bool = True) -> asyncio.Future[bytes]:
        return self._publisher.send(
            names.history_subject(event.run_id), encode(event), headers, wait_if_full=wait_if_full
        )

    async def append(self, event: Event, *, expect_seq: int | None = None, message_id: str | None = None) -> int:
        """Publish `event` to its run's history and return the stream sequence. `message_id` replaces its usual id.

        A duplicate within the 5 s window returns the first sequence. Raises Conflict if `expect_seq` (the run's last
        sequence, 0: none) is stale, perhaps because of this same event whose answer was lost: the broker checks it
        before ids. Raises Unavailable if no answer came in 5 s (outcome unknown: retry with the same event).
        """
        if expect_seq is not None:
            if expect_seq == 0 and not is_child(event):
                await self._check_unused([event.run_id])
            return await self._append(event, {EXPECT_SEQ: str(expect_seq)})
        return await self._append(event, {MSG_ID: message_id or message_ids.of_event(event)})

    async def mark(self, run_id: str, body: bytes, last_seq: int = 0) -> int:
        """Append what is no event to a history that ends with this sequence (0: an empty one), and return its sequence;
        no two bodies are the same. Raises Conflict, and appends nothing, for another one; Unavailable (outcome
        unknown)."""
        if not last_seq:
            await self._check_unused([run_id])
        try:
            return await self._publish(run_id, body, {EXPECT_SEQ: str(last_seq)})
        except Conflict:
            stored = await self.last(run_id)
            if stored is None or stored.data != body:
                raise
            return self._saw(stored.seq)  # it was this very message, whose answer got lost

    async def append_next(self, event: Event, last_seq: int, more: Mapping[str, str] = {}) -> bool:
        """Append if the run's history still ends with the sequence `last_seq`; otherwise return False. Of several
        concurrent calls, exactly one returns True. `more` are headers. Raises Unavailable (outcome unknown)."""
        mark = uuid4().hex
        try:
            await self._append(event, {MSG_ID: mark, EXPECT_SEQ: str(last_seq), **more})
            return True
        except Conflict:  # perhaps by this very event, whose answer got lost
            return is_among(mark, await self.read(event.run_id, last_seq))

    async def append_removal(self, event: WorkflowRemoved, last_seq: int) -> bool:
        """As `append_next`. What stays of the run is this event, for REMOVAL_TTL."""
        return await self.append_next(event, last_seq, {TTL: REMOVAL_TTL})

    async def append_together(self, events: Sequence[Event], last_seq: int) -> bool:
        """As `append_next`, of up to 1,000 events of one run, all or none."""
        run_id = events[0].run_id
        if last_seq == 0 and run_id in await self._used([run_id]):
            return False
        mark = uuid4().hex
        return await self._append_behind(run_id, [message(event, mark) for event in events], last_seq, mark)

    async def bring_back(self, lead: bytes, events: Sequence[Event], last_seq: int) -> bool:
        """As `append_together`, for an archived run: `lead` is the mark that leads to what comes before the events."""
        mark, run_id = uuid4().hex, events[0].run_id
        first = Message(names.history_subject(run_id), lead, f"{run_id}.restored.{mark}")
        return await self._append_behind(run_id, [first, *(message(one, mark) for one in events)], last_seq, mark)

    async def _append_behind(self, run_id: str, messages: Sequence[Message], last_seq: int, mark: str) -> bool:
        first = messages[0]._replace(headers={EXPECT_SEQ: str(last_seq)})
        try:
            await self._store_all([first, *messages[1:]])
        except Conflict:  # as in append_next
            return is_among(mark, await self.read(run_id, last_seq))
        return True

    async def append_all(self, events: Sequence[Event]) -> int:
        """Append up to 1,000 events of any runs, all or none, and return the last sequence. Raises as
        `publish_batch`."""
        return await self._store_all([message(event) for event in events])

    async def append_orders(self, events: Sequence[Event]) -> int:
        """As `append_all`, under ids of their own: the same order may be given again at once, after its opposite."""
        call = uuid4().hex
        return await self._store_all([message(event, call) for event in events])

    async def append_first(self, events: Sequence[Event]) -> int:
        """As `append_all`, for runs without a history. Raises Conflict, and appends nothing, when one has a history;
        Unavailable (outcome unknown)."""
        await self._check_unused([event.run_id for event in events])
        mark = uuid4().hex
        try:
            return await self._store_all([message(event, mark, {EXPECT_SEQ: "0"}) for event in events])
        except Conflict:
            stored = await self.read(events[-1].run_id)
            if not is_among(mark, stored):
                raise
            return self._saw(stored[0].seq)  # it was this very batch, whose answer got lost

    async def begun(self, run_ids: Sequence[str]) -> set[str]:
        """Those of these runs that have a history, here or in the archive."""
        found = (await self.last_of(run_ids)).keys()
        return {*found, *await self.archive.among([run_id for run_id in run_ids if run_id not in found])}

    async def _used(self, run_ids: Sequence[str]) -> set[str]:
        """As `begun`, where runs are archived. Elsewhere the broker finds out, as it refuses to append."""
        return await self.begun(run_ids) if await self.archive.in_use() else set()

    async def _check_unused(self, run_ids: Sequence[str]) -> None:
        if used := await self._used(run_ids):
            raise Conflict(f"run {min(used)} exists already")

    async def moved(self, run_ids: Sequence[str], after: int, until: int) -> list[str]:
        """Those of these runs that have an event beyond the sequence `after`, up to `until`; all of them when that is
        not cheap to find out."""
        if until - after > MOVED_EVENTS_MAX or await self._reader.leaders.needed(names.HISTORY):
            return list(run_ids)
        events = self._reader.between(names.HISTORY, "history.>", after + 1, until)
        found = {one.subject.rpartition(".")[2] async for one in events}
        return [run_id for run_id in run_ids if run_id in found]

    async def first_seq(self, run_id: str) -> int:
        """The sequence of the run's first event; 0: it has none."""
        found = await self.first(run_id)
        return 0 if found is None else found.seq

    async def first(self, run_id: str) -> Stored | None:
        """The run's first event, or None."""
        async for page in self.pages(run_id, 0):
            return page[0]
        return None

    async def begins_amid_batch(self, run_id: str) -> bool:
        """Whether the run's first event was stored in a batch, and was not the last of it."""
        first = await self.first(run_id)
        return first is not None and BATCH_ID.encode() in first.headers and BATCH_COMMIT.encode() not in first.headers

    async def _store_all(self, messages: Sequence[Message]) -> int:
        seq = await self._batches.publish(messages)
        return self._saw(seq or await self.last_seq())

    def _saw(self, seq: int) -> int:
        self.stored = max(self.stored, seq)
        return seq

    async def schedule(self, scheduled: WorkflowScheduled, started: WorkflowStarted) -> int:
        """Append `scheduled` to an empty history, and have the broker append `started` at its time: both or none.

        Returns the sequence of `scheduled`, or a later one. Raises Conflict for a history that is not empty, perhaps
        because of this same call; Unavailable (outcome unknown).
        """
        await self._check_unused([scheduled.run_id])
        at = {
            SCHEDULE: f"@at {scheduled.payload.run_at}",
            SCHEDULE_TARGET: names.history_subject(started.run_id),
        }
        first = message(scheduled, uuid4().hex, {EXPECT_SEQ: "0"})
        later = message(started, uuid4().hex, at)._replace(subject=names.start_subject(started.run_id))
        seq = await self._batches.join([first, later]) or await self.last_seq() + 1
        return self._saw(seq - 1)  # the later one is no event yet

    async def append_unless_started(self, event: WorkflowCancelled) -> bool:
        """Append to the history of a scheduled run and remove its scheduled start, atomically. False: it has started,
        and nothing was appended. Raises Unavailable (outcome unknown).

        The expectation is the end of the run's own history, not of its schedule, where a cluster counts a start that is
        not stored yet. If a signal comes in between, this tries again. A start that the broker has taken up by then may
        still be stored behind the event: a cancelled run ignores it.
        """
        mark = uuid4().hex
        while True:
            stored = await self.read(event.run_id)
            if is_among(mark, stored):  # the answer to an earlier try got lost
                return True
            if await self._reader.one(names.HISTORY, names.start_subject(event.run_id)) is None:
                return False
            expected = {MSG_ID: mark, EXPECT_SEQ: str(stored[-1].seq if stored else 0)}
            with suppress(Conflict):
                await self._append(event, {**taking_back(event.run_id), **expected})
                return True

    async def cancel_all(self, events: Sequence[WorkflowCancelled]) -> None:
        """Append up to 1,000 events, and remove the scheduled starts of these runs, all or none. Raises Unavailable."""
        batch = uuid4().hex  # a cancellation of one of the runs alone must not pass for a repeat of this batch
        await self._store_all([message(event, batch, taking_back(event.run_id)) for event in events])

    async def _append(self, event: Event, headers: dict[str, str]) -> int:
        return await self._publish(event.run_id, encode(event), headers)

    async def _publish(self, run_id: str, body: bytes, headers: dict[str, str]) -> int:
        self._broker.check_connected()
        sent = self._publisher.send(names.history_subject(run_id), body, headers, wait_if_full=False)
        return self._saw(ack_seq(await within(sent, PUBLISH_DEADLINE_S, NO_ANSWER)))

    async def read(self, run_id: str, after: int = 0) -> list[Stored]:
        """The run's stored events after a sequence, in order. An unknown run has none."""
        return await self._reader.subject(names.HISTORY, names.stored_subject(run_id), after + 1)

    def pages(
        self, run_id: str, after: int = 0, ahead_to: int = 0, *, by_index: bool = True, last: Stored | None = None
    ) -> AsyncGenerator[list[Stored]]:
        """As `read`, with what is in the archive, a page at a time, so that little of it is in memory; up to `ahead_to`
        the next page is on its way meanwhile. Without `by_index`, only marks in the history lead to the archive. With
        `last`, the run's last event just now, what comes behind that may be left out."""
        history = self._reader.pages(names.HISTORY, names.stored_subject(run_id), after + 1, ahead_to)
        if last is not None:
            history = pages_to_far(self._broker, self._reader, run_id, after, last, history)
        return whole_pages(self.archive, run_id, after, history, self._reader, by_index=by_index)

    async def at(self, run_id: str, seq: int) -> Stored | None:
        """The run's event with this stream sequence, here or in the archive, or None."""
        found = await self._reader.at(names.HISTORY, seq)
        if found is not None:
            return found if found.subject == names.stored_subject(run_id) else None
        archived = await self.archived(run_id)
        return None if archived is None else archived.at(seq)

    async def archived(self, run_id: str) -> ArchivedRun | None:
        """What the archive has of the run, if anything. Raises Unavailable as long as that is not known."""
        if not await self.archive.in_use():
            return None
        first = await self._reader.next(names.HISTORY, names.stored_subject(run_id), 1)
        return await archived_part(self.archive, run_id, [] if first is None else [first], by_index=True)

    async def last(self, run_id: str) -> Stored | None:
        """The run's last event, or None. Faster than to look for events after a sequence that is the last one."""
        return await self._reader.one(names.HISTORY, names.stored_subject(run_id))

    async def first_in(self, partition: int | None, from_seq: int) -> Stored | None:
        """The first event of any run of a partition (None: of all) from this sequence on, or None."""
        return await self._reader.next(names.HISTORY, names.partition_filter(partition), from_seq)

    async def count_in(self, partition: int, from_seq: int) -> int:
        """The number of events of a partition from this sequence on."""
        return await self._reader.count(names.HISTORY, names.partition_filter(partition), from_seq)

    async def erase(self, seq: int) -> None:
        """Delete one message, for good, if it is there. Raises Unavailable."""
        await self._broker.remove(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": seq, "no_erase": True})

    async def last_of(self, run_ids: Sequence[str]) -> dict[str, Stored]:
        """The last event of each run that has one; in a cluster it may be slightly out of date."""
        found = await self._reader.last(names.HISTORY, [names.stored_subject(run_id) for run_id in run_ids])
        return {one.subject.rpartition(".")[2]: one for one in found}

    async def surely_last_of(self, run_ids: Sequence[str]) -> dict[str, Stored] | None:
        """As `last_of`, never out of date: None in a cluster, where a copy may answer."""
        return None if await self._reader.leaders.needed(names.HISTORY) else await self.last_of(run_ids)

    async def run_ids(self) -> list[str]:
        """The ids of all runs that have a history. Raises Unavailable."""
        return [subject.rpartition(".")[2] for subject in await self._broker.subjects(names.HISTORY, "history.>")]

    async def last_seq(self) -> int:
        """The stream's last sequence now, over all runs."""
        return (await self.tip()).seq

    async def tip(self) -> Tip:
        """The identity and the current end of the stream."""
        info = await self._broker.api(f"STREAM.INFO.{names.HISTORY}", timeout_s=LEADER_S)
        state, config = info["state"], info["config"]
        limits = [config.get("max_age", 0), *(config.get(limit, -1) for limit in ("max_bytes", "max_msgs"))]
        self.keeps_all = all(limit <= 0 for limit in limits)
        return Tip(
            info["created"],
            int(state["last_seq"]),
            datetime.fromisoformat(info["ts"]).timestamp(),
            int(state["first_seq"]),
        )

    async def now(self) -> float:
        """The broker's clock, s since the epoch: a message that is stored later has no earlier time."""
        return (await self.tip()).at

    async def seq_after(self, seq: int) -> int | None:
        """The sequence of the first message after `seq`; None: there is none, or it was removed."""
        try:
            found = await self._broker.api(f"STREAM.MSG.GET.{names.HISTORY}", {"seq": seq + 1, "next_by_subj": ">"})
        except ApiError as error:
            if error.err_code != Code.MESSAGE_NOT_FOUND:
                raise
            return None
        return int(found["message"]["seq"])

    def consume(
        self,
        consumer: str,
        take: Callable[[Delivery], None],
        *,
        batch: int,
        room: Callable[[], int],
        before: Callable[[], Awaitable[None]],
    ) -> AbstractAsyncContextManager[Pull]:
        """The deliveries of one partition's consumer, for the time of the block. Acknowledging one acknowledges all
        before it.

        `before` is awaited at the start and whenever deliveries may have been lost on the way (a reconnect). Of large
        events fewer than `batch` come at a time: PULL_BYTES_MAX, or one event.
        """
        return open_pull(
            self._broker, names.HISTORY, consumer, take, batch=batch, room=room, before=before, bytes_max=PULL_BYTES_MAX
        )

    def tail(
        self, after: int, unwanted: tuple[bytes, ...] = (), *, brief: bool = False
    ) -> AbstractAsyncContextManager[Tail]:
        """A reader of everything after a sequence, stored and new, for the time of the block; `unwanted` and `brief` as
        in `open_tail`.

        Timers are also in the stream, under subjects of their own, so the sequence of the last delivery shows how far
        the reader is.
        """
        return open_tail(self._broker, names.HISTORY, after, unwanted=unwanted, brief=brief)

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Stored | None, None]:
        """The run's events after a sequence, then each new one as it is stored. It never ends.

        Yields None when there is nothing more for now: after the stored events, and after each quiet 2 s.
        """
        return watch(self._broker, self._reader, run_id, after)

    def run_events(self, run_id: str, wakes: Wakes) -> RunEvents:
        """The run's events for the time of a block: first those that are stored, then new ones when `wakes` is true of
        one of them."""
        return RunEvents(self._broker, self._reader, run_id, wakes)

    def batches(self, run_id: str, wakes: Wakes, begin: Begin | None = None) -> AsyncGenerator[Sequence[Stored], None]:
        """As `follow` from the beginning, in batches; an empty batch when there is nothing more for now.

        New events come when `wakes` is true of one of them, or after the quiet time: a caller that waits for the end is
        not woken for each event. `begin` starts the run: the first batch is empty then, and comes when it is started.
        """
        return batches(self._broker, self._reader, run_id, 0, wakes, begin)
