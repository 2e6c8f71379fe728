"""Removing what is gone already is no trouble, however the broker says that it is not there; and all removals are made
in one way."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.errors import ApiError
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store
from penstock.engine.run.commands import DispatchTask, WithdrawSticky

FOLDERS = ("actors", "broker", "http", "worker", "cli")
ROOT = Path(__file__).parents[2]


async def test_a_message_is_removed_once_wherever_in_the_stream_it_was(store: Store) -> None:
    """In the middle, at the beginning, at the end, and of a stream that is empty by now: the broker says each in
    another way."""
    sent = [ack_seq(await store.publisher.send(f"dead.remove.{n}", b"x")) for n in range(3)]
    verb = f"STREAM.MSG.DELETE.{names.DEAD}"
    for seq in (sent[1], sent[0], sent[2]):
        assert await store.broker.remove(verb, {"seq": seq, "no_erase": True})
        assert not await store.broker.remove(verb, {"seq": seq, "no_erase": True})
    assert [False] * 4 == [await store.broker.remove(verb, {"seq": seq}) for seq in (*sent, sent[2] + 100)]


async def test_of_messages_that_are_removed_at_once_those_that_are_gone_are_passed_over(store: Store) -> None:
    sent = [ack_seq(await store.publisher.send(f"dead.erase.{n}", b"x")) for n in range(5)]
    await asyncio.gather(*(store.publisher.erase(names.DEAD, seq) for seq in (*sent[1:], sent[2], sent[-1] + 100)))
    assert sent[:1] == [one.seq for one in await store.reader.subject(names.DEAD, "dead.erase.>")]
    await store.publisher.erase("NONE", 1)
    assert not store.publisher.in_flight


async def test_what_never_was_is_removed_already(store: Store) -> None:
    removals = [
        f"CONSUMER.DELETE.{names.TASKS}.none",
        "CONSUMER.DELETE.NONE.none",
        "STREAM.DELETE.NONE",
        "STREAM.PURGE.NONE",
    ]
    assert [False] * 4 == [await store.broker.remove(verb) for verb in removals]


async def test_a_refusal_that_means_anything_else_is_one(store: Store) -> None:
    with pytest.raises(ApiError, match="invalid JSON"):
        await store.broker.remove(f"STREAM.MSG.DELETE.{names.DEAD}", {"seq": "first"})


async def test_a_task_that_its_worker_has_answered_meanwhile_is_taken_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is empty then: the broker answers as if it were in trouble, and the run would start over."""
    run_id = uuid7().hex
    await store.tasks.send(run_id, "wf", DispatchTask("s", "gone", 1, 0, Raw(b"1"), {}, None, "w1"))
    removed, remove = list[bool](), store.broker.remove

    async def second(verb: str, request: dict[str, Any] | None = None) -> bool:
        """The worker's acknowledgement comes between the look and the removal."""
        removed.extend([await remove(verb, request), await remove(verb, request)])
        return removed[-1]

    monkeypatch.setattr(store.broker, "remove", second)
    await store.tasks.withdraw_sticky(run_id, WithdrawSticky("s", "gone", 1, 0, "w1"), lambda: None)
    assert ([True, False], []) == (removed, await store.reader.subject(names.STICKY, "sticky.>"))


def test_all_removals_go_one_way() -> None:
    """`Broker.remove` knows what gone is; who asks the broker past it would take that for an outage, or for a
    refusal."""
    past = re.compile(r"\.api\(\s*f?\"(STREAM\.(MSG\.)?DELETE|STREAM\.PURGE|CONSUMER\.DELETE)")
    found = [str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if past.search(path.read_text())]
    assert found == []
