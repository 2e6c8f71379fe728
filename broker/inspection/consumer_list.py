"""The consumers of a stream with how far each is, and the number of messages in a stream."""

from __future__ import annotations

from msgspec import Struct

from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.streams.consumers import ConsumerProgress, progress_in

CONSUMERS_MAX = 2_000  # of one stream; the broker lists 256 at a time


class ListedConsumer(Struct, frozen=True):
    """`filter` is empty for a consumer of the whole stream, or of several filters."""

    stream: str
    name: str
    filter: str
    progress: ConsumerProgress


async def consumers_of(broker: Broker, stream: str) -> list[ListedConsumer]:
    """The consumers of the stream, none if it does not exist. Raises Unavailable."""
    found: list[ListedConsumer] = []
    while len(found) < CONSUMERS_MAX:
        try:
            page = await broker.api(f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        except ApiError as error:
            if error.err_code != Code.STREAM_NOT_FOUND:
                raise
            break
        for info in page["consumers"] or []:
            filtered = str(info["config"].get("filter_subject", ""))
            found.append(ListedConsumer(stream, info["name"], filtered, progress_in(info)))
        if not page["consumers"] or len(found) >= page["total"]:
            break
    return found


async def messages_in(broker: Broker, stream: str) -> int:
    """How many messages are stored in the stream. Raises Unavailable."""
    return int((await broker.api(f"STREAM.INFO.{stream}"))["state"]["messages"])
