"""An outbox whose service does not know the execution: nothing is lost when it knows it again, and nothing stays."""

from __future__ import annotations

import asyncio

import pytest

from penstock.engine.errors import NotFound
from penstock.worker.live import outbox
from penstock.worker.live.outbox import Outbox, Outboxes, Parcel

ENTRIES = [b"1", b"2"]


class Service:
    """Owned by a test: what it has stored, and whether it knows the execution."""

    def __init__(self) -> None:
        self.knows = False
        self.stored: list[bytes] = []
        self.refusals: asyncio.Queue[int] = asyncio.Queue()

    async def store(self, parcel: Parcel) -> None:
        if not self.knows:
            self.refusals.put_nowait(parcel.number)
            raise NotFound("the task is not among the polled tasks")
        self.stored.extend(parcel.entries)


@pytest.fixture
def service() -> Service:
    return Service()


async def test_what_is_refused_is_sent_again_while_the_function_runs(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AGAIN_S", 0.01)
    ours = Outbox(service.store, Outboxes())
    for entry in ENTRIES:
        ours.put(entry)
    assert [1, 1] == [await service.refusals.get(), await service.refusals.get()]
    service.knows = True
    ours.finish()
    await ours.sent()
    await ours.try_again()
    assert ENTRIES == service.stored


async def test_what_is_refused_at_the_end_has_one_try_more(service: Service) -> None:
    ours = Outbox(service.store, Outboxes())
    for entry in ENTRIES:
        ours.put(entry)
    ours.finish()
    await service.refusals.get()
    await ours.sent()
    service.knows = True  # the task was delivered again while something else was being sent
    await ours.try_again()
    assert ENTRIES == service.stored


@pytest.mark.parametrize("finished", [True, False])
async def test_what_is_refused_for_good_is_given_up_and_takes_no_room(service: Service, finished: bool) -> None:
    shared = Outboxes()
    ours = Outbox(service.store, shared)
    ours.put(ENTRIES[0])
    await service.refusals.get()
    ours.put(ENTRIES[1])
    if finished:
        ours.finish()
        await ours.sent()
        await ours.try_again()
    else:
        ours.close()
        await ours.sent()
    service.knows = True
    await ours.try_again()
    assert (0, []) == (shared.size, service.stored)
