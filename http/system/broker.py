"""/broker: where everything is stored: the nodes, who leads which stream, and how much storage is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from falcon.asgi import Request, Response

from penstock.broker.inspection.stream_list import FollowingCopy, ListedStream, streams_of
from penstock.broker.nats.connection import address
from penstock.broker.streams.provisioning import streams
from penstock.client.operating.views import BrokerNodeView, BrokerView, StreamCopyView, StreamView
from penstock.config.process.background import both
from penstock.http.backend import Backend
from penstock.http.messages import responses
from penstock.http.system.storage import storage


class BrokerResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Where everything is stored, and who leads it."""
        store, settings = self._backend.store, self._backend.settings
        wanted = {one["name"] for one in streams(settings)}
        (used, limit), found = await both(storage(store, settings), streams_of(store.broker, wanted))
        view = BrokerView(
            address(settings),
            store.broker.server_version,
            settings.embedded,
            used,
            _nodes(store.broker.server_name, found),
            [StreamView(one.name, one.messages, one.bytes, one.leader, _copies(one.copies)) for one in found],
            limit,
            store.broker.cluster,
            settings.fsync if settings.embedded else None,
        )
        responses.ok(resp, view)


def _copies(found: Sequence[FollowingCopy]) -> list[StreamCopyView]:
    return [StreamCopyView(one.node, one.current, one.online, one.behind) for one in found]


def _nodes(connected: str, found: Sequence[ListedStream]) -> list[BrokerNodeView]:
    """Every node that has a stream, and the one that this process is connected to, by name."""
    leads = Counter(one.leader for one in found if one.leader)
    follows = Counter(copy.node for one in found for copy in one.copies)
    away = {copy.node for one in found for copy in one.copies if not copy.online}
    return [
        BrokerNodeView(node, leads[node], follows[node], node not in away)
        for node in sorted({connected, *leads, *follows})
    ]
