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


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each answer to a read had."""
    sizes, ask = list[int](), direct.DirectReader._ask

    async def counted(*call: object) -> object:
        page, left = await ask(*call)  # type: ignore[arg-type]
        sizes.append(sum(len(one.data) for one in page))
        return page, left

    monkeypatch.setattr(direct.DirectReader, "_ask", counted)
    return sizes


async def test_the_last_messages_of_many_subjects_are_all_found(store: Store) -> None:
    subjects = await _fill(store, "lasts")
    found = await store.reader.last(names.DEAD, [*subjects, "dead.lasts.never"])
    assert sorted(subjects) == sorted(one.subject for one in found)
    assert {b"last"} == {one.data.rstrip() for one in found}


async def test_a_part_is_no_larger_than_asked_for(store: Store, answers: list[int]) -> None:
    subjects = await _fill(store, "parts")
    assert 11 == len(await store.reader.last(names.DEAD, subjects))
    assert 22 == len(await store.reader.subject(names.DEAD, "dead.parts.*"))
    assert sum(answers) == 33 * BYTES
    assert max(answers) <= READ_BYTES + BYTES  # the one with which it was over ends a part
