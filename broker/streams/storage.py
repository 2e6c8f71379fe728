"""Whether the broker stores what is published: checked stream by stream, and by a test write.

After a single failed write a server without replicas does not answer publishes to that stream until it is restarted;
everything else works, including its API and its own health check. What it has acknowledged is in its files.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.broker import names, record_keys
from penstock.broker.nats.batch import SEQ_NEVER
from penstock.broker.nats.connection import Broker, connect
from penstock.broker.nats.errors import FULL, NOT_THERE_TEXTS, Code
from penstock.broker.nats.headers import TTL
from penstock.broker.streams.provisioning import streams
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Full, NotFound, Unavailable

CHECK_S_MAX = 1.0
WRITE_S_MAX = 1.5
FAILED = (Code.STREAM_FAILED, Code.DELETE_FAILED, Code.PURGE_FAILED)
PROBE_TTL_S = 60


async def stopped(settings: BrokerSettings) -> str | None:
    """The error that stopped one of the service's streams; None: all of them accept messages. Raises Unavailable,
    Denied."""
    async with connect(settings, "storage", CHECK_S_MAX) as broker:
        for stream in streams(settings):
            if stream["storage"] == "file" and (problem := await _stopped(broker, stream)):
                return problem
    return None


async def _stopped(broker: Broker, stream: dict[str, Any]) -> str | None:
    """A removal of something that cannot exist changes nothing, and is refused with the error that stopped the
    stream."""
    name = stream["name"]
    request: dict[str, Any] = {"seq": SEQ_NEVER, "no_erase": True}
    verb = f"STREAM.MSG.DELETE.{name}"
    if stream.get("deny_delete"):
        verb, request = f"STREAM.PURGE.{name}", {"filter": names.NO_SUBJECT}
    try:
        answer = await broker.request(f"$JS.API.{verb}", orjson.dumps(request), CHECK_S_MAX)
    except NotFound:
        return "the broker has switched its storage off"
    error = orjson.loads(answer.data).get("error", {})
    text: str = error.get("description", "")
    return text if error.get("err_code") in FAILED and text not in NOT_THERE_TEXTS else None


async def check_writes(broker: Broker) -> None:
    """Have the broker store a few bytes that nothing reads. Raises Unavailable with the reason if it cannot, Full."""
    subject = names.key_subject(names.ENGINES, record_keys.PROBE)
    try:
        answer = await broker.request(subject, b"", WRITE_S_MAX, {TTL: str(PROBE_TTL_S)})
    except NotFound as error:
        raise Unavailable("the broker's storage is not available") from error
    except Unavailable as error:
        raise Unavailable(f"the broker stores nothing: no answer to a write in {WRITE_S_MAX:g} s") from error
    refused = orjson.loads(answer.data).get("error")
    if refused is None:
        return
    kind = Full if refused.get("err_code") in FULL else Unavailable
    raise kind(f"the broker's storage does not work: {refused.get('description')}")
