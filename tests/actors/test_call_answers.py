"""The answer of a call is taken from the end that the run's owner wrote, if nothing else can be the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from msgspec import Raw

from penstock.actors.control.calls import called
from penstock.actors.control.watch import Watched, may_answer, owner_output
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.engine.errors import NotFound
from penstock.engine.run.event_payloads import Completed, Reply, Started, StepFacts
from penstock.engine.run.events import (
    Event,
    StepCompleted,
    StepStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowRemoved,
    WorkflowStarted,
    encode,
)
from tests.support.world import chain, echo, register

RUN = "a" * 32
FIRST = 7
TRIES_MAX = 5
STARTED = WorkflowStarted(run_id=RUN, payload=Started(workflow="w", version="1", digest="d"))
BEGUN = StepStarted(run_id=RUN, step_id="s", attempt_number=1)
DONE = StepCompleted(run_id=RUN, step_id="s", attempt_number=1, payload=Raw(b"1"))
REPLIED = StepStarted(run_id=RUN, step_id="r", attempt_number=1, payload=StepFacts(reply=Reply(body=Raw(b"2"))))
COMPLETED = WorkflowCompleted(run_id=RUN, payload=Completed(output=Raw(b'{"n":1}')))


def batch(*events: Event, owner_seq: int | None = None, first: int = FIRST) -> Sequence[Stored]:
    """These events as they are stored, each with the next sequence; the owner had folded all before the last one."""
    seqs = range(first, first + len(events))
    folded = seqs[-1] - 1 if owner_seq is None else owner_seq
    headers = b"NATS/1.0\r\n%b: %d\r\n\r\n" % (names.OWNER_SEQ.encode(), folded)
    stored = [Stored("history.0.a", seq, 0.0, encode(event)) for seq, event in zip(seqs, events, strict=True)]
    last = stored[-1]
    return [*stored[:-1], Stored(last.subject, last.seq, last.at, last.data, headers=headers)]


def test_the_end_that_an_owner_wrote_has_the_output() -> None:
    assert Raw(b'{"n":1}') == owner_output(batch(STARTED, BEGUN, DONE, COMPLETED))


@pytest.mark.parametrize(
    "events",
    [
        (BEGUN, DONE, COMPLETED),
        (STARTED, COMPLETED),
        (STARTED, BEGUN, DONE),
        (STARTED, REPLIED, DONE, COMPLETED),
        (STARTED, BEGUN, WorkflowCancelled(run_id=RUN), COMPLETED),
        (STARTED, BEGUN, COMPLETED, COMPLETED),
        (STARTED, BEGUN, DONE, WorkflowFailed(run_id=RUN)),
        (STARTED, BEGUN, DONE, WorkflowCompleted(run_id=RUN, payload=Completed(output_bytes=2_000_000))),
    ],
    ids=["late", "short", "open", "responded", "cancelled", "twice", "failed", "large"],
)
def test_whatever_else_may_be_the_answer_is_folded(events: tuple[Event, ...]) -> None:
    assert None is owner_output(batch(*events))


def test_an_end_that_is_not_from_the_owner_as_of_the_last_event_is_folded() -> None:
    events = (STARTED, BEGUN, DONE, COMPLETED)
    assert None is owner_output(batch(*events, owner_seq=FIRST + 1))
    assert None is owner_output([Stored(one.subject, one.seq, one.at, one.data) for one in batch(*events)])
    assert None is owner_output([])


def test_a_caller_is_woken_for_answers_only() -> None:
    assert [False, False, False] == [may_answer(encode(event)) for event in (STARTED, BEGUN, DONE)]
    assert [True, True, True] == [
        may_answer(encode(event)) for event in (REPLIED, COMPLETED, WorkflowFailed(run_id=RUN))
    ]


async def test_a_call_is_answered_without_folding_its_run(store: Store) -> None:
    definition, digest = await register(store, chain("quick", 2))
    folded = list[bool]()
    async with open_shard(store, new_member("shard")), echo(store, "quick.echo"):
        while len(folded) < TRIES_MAX and all(folded):  # one that takes over 2 s is folded meanwhile
            async with called(store, definition, digest, Raw(b'{"n":1}')) as call:
                found = await call.answer(asyncio.timeout(20))
            assert ("completed", b'{"n":1}') == (found.outcome, bytes(found.output or b""))
            folded.append(call._watched.run is not None)
    assert not folded[-1]


async def test_a_run_whose_first_event_is_not_read_in_time_is_waited_for(store: Store) -> None:
    """A follower says that there is nothing more for now, too, when a read had no answer."""

    async def coming(*batches: Sequence[Stored]) -> AsyncGenerator[Sequence[Stored]]:
        for one in batches:
            yield one

    done = batch(STARTED, BEGUN, DONE, COMPLETED)
    assert Raw(b'{"n":1}') == await Watched(store, RUN).first_answer(coming([], [], done))
    removed = batch(WorkflowRemoved(run_id=RUN))
    with pytest.raises(NotFound):
        await Watched(store, RUN).first_answer(coming([], removed, []))
