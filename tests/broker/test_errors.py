"""The broker's errors are ours by meaning, and a wait without an answer ends as Unavailable."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.broker.nats.connection import connect
from penstock.broker.nats.errors import ApiError, Code, Within, translated
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Full, PenstockError, TooLarge, Unavailable

BROKER = Path(__file__).parents[2] / "broker"


@pytest.mark.parametrize(
    ("code", "err_code", "text", "kind"),
    [
        (400, Code.WRONG_LAST_SEQUENCE, "wrong last sequence: 3", Conflict),
        (400, Code.WRONG_LAST_SEQUENCE_OF_SUBJECT, "wrong last sequence", Conflict),
        (400, Code.ACCOUNT_FULL, "resource limits exceeded for account", Full),
        (503, Code.SERVER_FULL, "insufficient resources", Full),
        (500, Code.NO_ROOM_FOR_STREAM, "insufficient storage resources available", Full),
        (400, Code.MESSAGE_TOO_LARGE, "message size exceeds maximum allowed", TooLarge),
        (500, Code.DELETE_FAILED, "stream store EOF", ApiError),
        (500, Code.DELETE_FAILED, "no space left on device", Unavailable),
        (429, 0, "too many requests", Unavailable),
        (404, Code.STREAM_NOT_FOUND, "stream not found", ApiError),
    ],
)
def test_an_error_is_translated_by_its_meaning(code: int, err_code: int, text: str, kind: type[PenstockError]) -> None:
    error = translated({"code": code, "err_code": err_code, "description": text})
    assert kind is type(error)
    assert text in str(error)


def test_a_message_that_is_gone_is_no_failure_of_the_broker() -> None:
    error = translated({"code": 500, "err_code": Code.DELETE_FAILED, "description": "no message found"})
    assert isinstance(error, ApiError)
    assert (404, Code.SEQUENCE_NOT_FOUND) == (error.code, error.err_code)


def test_the_codes_stand_in_one_table() -> None:
    others = [path for path in BROKER.rglob("*.py") if path.name != "errors.py"]
    assert [] == [path.name for path in others if re.search(r"\b10[01]\d\d\b|\b102\d\d\b", path.read_text())]


async def test_no_answer_in_time_is_unavailable_with_the_given_text() -> None:
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(Unavailable, match="whether it was stored is unknown"):
        async with Within(0.01, "whether it was stored is unknown"):
            await never
    assert never.cancelled()


async def test_an_answer_in_time_and_another_error_pass() -> None:
    async with Within(5, "too late"):
        await asyncio.sleep(0)
    with pytest.raises(Conflict, match="stale"):
        async with Within(5, "too late"):
            raise Conflict("stale")


async def test_a_lost_connection_is_reported_at_once(store: Store) -> None:
    async def wait_until_lost() -> None:
        async with store.broker.deadline(60, "nothing came"):
            await store.broker._disconnected()
            await asyncio.Event().wait()

    with pytest.raises(Unavailable, match="nothing came"):
        await wait_until_lost()


def test_a_lost_connection_with_unsent_messages_can_be_closed(broker_settings: BrokerSettings) -> None:
    """With the loop that the service's processes run on: its transport refuses by an error of its own."""

    async def lose() -> None:
        async with connect(broker_settings, "lost") as broker:
            client: Any = broker.client
            client._pending, client._pending_data_size = [b"PING\r\n"], 6
            client._transport._io_writer.transport.abort()

    uvloop.run(lose())
