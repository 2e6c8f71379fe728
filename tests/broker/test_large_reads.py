"""Reads of many large messages come in parts, so that a client's connection never has too much to carry at once."""

from __future__ import annotations

import pytest

from penstock.broker import names
from penstock.broker.nats import direct
from penstock.broker.store import Store
from penstock.config.limits import KIB

BYTES = 100 * KIB
READ_BYTES = 250 * KIB  # two messages and a half


async def _fill(store: Store, name: str) -> list[str]:
    """Two messages each of eleven subjects; returns the subjects."""
    subjects = [f"dead.{name}.{number}" for number in range(11)]
    for body in (b"former", b"last"):
        for subject in subjects:
            await store.publisher.send(subject, body.ljust(BYTES))
    return subjects


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "PAGE_BYTES", READ_BYTES)
    monkeypatch.setattr(direct, "LASTS_BYTES", READ_BYTES)


async def test_the_last_messages_of_many_subjects_are_all_found(store: Store) -> None:
    subjects = await _fill(store, "lasts")
    found = await store.reader.last(names.DEAD, [*subjects, "dead.lasts.never"])
    assert sorted(subjects) == sorted(one.subject for one in found)
    assert {b"last"} == {one.data.rstrip() for one in found}


async def test_a_part_is_no_larger_than_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects, parts, ask = await _fill(store, "parts"), [], direct.DirectReader._ask

    async def counted(*call: object) -> object:
        page, left = await ask(*call)  # type: ignore[arg-type]
        parts.append(sum(len(one.data) for one in page))
        return page, left

    monkeypatch.setattr(direct.DirectReader, "_ask", counted)
    assert 11 == len(await store.reader.last(names.DEAD, subjects))
    assert 22 == len(await store.reader.subject(names.DEAD, "dead.parts.*"))
    assert sum(parts) == 33 * BYTES
    assert max(parts) <= READ_BYTES + BYTES  # the one with which it was over ends a part


async def test_a_range_is_read_by_fewer_requests_when_several_pages_may_come_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, asked, ask = await _fill(store, "range"), [], direct.DirectReader._ask

    async def counted(*call: object) -> object:
        page, left = await ask(*call)  # type: ignore[arg-type]
        asked.append(sum(len(one.data) for one in page))
        return page, left

    monkeypatch.setattr(direct.DirectReader, "_ask", counted)
    first, last = [one.seq for one in await store.reader.subject(names.DEAD, "dead.range.*")][:: 22 - 1]
    asked.clear()
    for pages, requests in ((1, 8), (3, 3), (100, 1)):
        found = [one async for one in store.reader.between(names.DEAD, "dead.range.*", first, last, pages)]
        assert [*subjects, *subjects] == [one.subject for one in found]
        assert requests == len(asked)
        assert max(asked) <= pages * READ_BYTES + BYTES
        asked.clear()
