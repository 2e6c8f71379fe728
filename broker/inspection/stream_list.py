"""The streams and buckets with their sizes, the node that leads each, and the nodes that have copies of it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from msgspec import Struct

from penstock.broker.nats.connection import Broker

STREAMS_MAX = 10_000  # the broker lists 256 at a time


class FollowingCopy(Struct, frozen=True):
    """A copy that follows the leader. `behind` is the number of operations that it has not got yet."""

    node: str
    current: bool
    online: bool
    behind: int


class ListedStream(Struct, frozen=True):
    """`leader` is empty while the copies have none: then nothing can be written."""

    name: str
    messages: int
    bytes: int
    leader: str
    copies: tuple[FollowingCopy, ...]


async def streams_of(broker: Broker, wanted: Container[str]) -> list[ListedStream]:
    """Those of these streams that exist, the largest first. Raises Unavailable, ApiError."""
    found: list[ListedStream] = []
    seen = 0
    while seen < STREAMS_MAX:
        page = await broker.api("STREAM.LIST", {"offset": seen})
        listed = page["streams"] or []
        found += (_stream(info, broker.server_name) for info in listed if info["config"]["name"] in wanted)
        seen += len(listed)
        if not listed or seen >= page["total"]:
            break
    return sorted(found, key=lambda stream: (-stream.bytes, stream.name))


def _stream(info: dict[str, Any], alone: str) -> ListedStream:
    """A broker that is no cluster says nothing of leaders: it is the leader, by the name `alone`."""
    state, cluster = info["state"], info.get("cluster")
    leader = alone if cluster is None else cluster.get("leader", "")
    copies = tuple(_copy(one) for one in (cluster or {}).get("replicas") or [])
    return ListedStream(info["config"]["name"], state["messages"], state["bytes"], leader, copies)


def _copy(info: dict[str, Any]) -> FollowingCopy:
    return FollowingCopy(info["name"], info.get("current", False), not info.get("offline", False), info.get("lag", 0))
