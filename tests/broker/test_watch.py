"""A watcher may be slow: what waits for it is bounded, and it sees all the same every event, in order."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from penstock.broker import names
from penstock.broker.store import Store
from penstock.broker.streams import watch
from penstock.config.process.background import all_of

RUN_ID = "1" * 32
BODY = b'{"n":%d}'


@pytest.mark.parametrize("bound", ["COPIES_MAX", "COPIES_BYTES_MAX"])
async def test_a_slow_watcher_holds_little_and_misses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    run_id = RUN_ID.replace("1", "2") if bound == "COPIES_MAX" else RUN_ID
    monkeypatch.setattr(watch, bound, 10 if bound == "COPIES_MAX" else 10 * len(BODY))
    held = list[watch.Copies]()
    made = watch.Copies

    def noted(wakes: watch.Wakes | None) -> watch.Copies:
        held.append(made(wakes))
        return held[-1]

    monkeypatch.setattr(watch, "Copies", noted)
    async with aclosing(watch.batches(store.broker, store.reader, run_id, 0)) as batches:
        assert not await anext(batches)
        most = 0
        for begin in range(0, 100, 20):
            sent = [store.publisher.send(names.history_subject(run_id), BODY % n) for n in range(begin, begin + 20)]
            await all_of([_answer(one) for one in sent])
            await store.broker.flush()
            most = max(most, len(held[0]._waiting))
        seen = list[bytes]()
        while len(seen) < 100:
            seen += [one.data for one in await anext(batches)]

    assert seen == [BODY % n for n in range(100)]
    assert most <= 12


async def _answer(sent) -> bytes:  # type: ignore[no-untyped-def]
    return bytes(await sent)
