"""Drain a host: the shards of its engines hand over their partitions and take no more."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from penstock.broker.records.owners import Owners, View
from penstock.config.limits import PARTITIONS
from penstock.engine.errors import Conflict, NotFound, Unavailable

POLL_S = 0.05


class Drained(Struct, frozen=True):
    """`partitions` is how many were handed over, `seconds` how long that took."""

    host: str
    shards: int
    partitions: int
    seconds: float


async def drain(owners: Owners, host: str, timeout_s: float) -> Drained:
    """Make the engines on the host hand over all partitions; return when others own them.

    Raises NotFound when no engine runs there, Conflict when no other engine can take over (then nothing is done), and
    Unavailable when it takes longer than `timeout_s`: the drain continues.
    """
    began, view = time.monotonic(), await owners.read()
    engines = {listed.member.engine for listed in view.members.values() if listed.member.host == host}
    if not engines:
        hosts = sorted({listed.member.host for listed in view.members.values()})
        raise NotFound(f"no engine runs on {host}: there are engines on {', '.join(hosts) or 'no host'}")
    if not _willing(view) - engines:
        raise Conflict(f"no other engine can take over the partitions of {host}: nothing was drained")
    shards, partitions = _count(view, engines)
    for engine in engines:
        await owners.drain(engine)
    while _count(view, _willing(view) - engines)[1] < PARTITIONS:
        if time.monotonic() - began > timeout_s:
            left = _count(view, engines)[1]
            raise Unavailable(f"{left} partitions of {host} are not handed over after {timeout_s:g} s")
        await asyncio.sleep(POLL_S)
        view = await owners.read()
    return Drained(host, shards, partitions, round(time.monotonic() - began, 2))


def _willing(view: View) -> set[str]:
    """The engines with a shard that takes partitions."""
    members = [listed.member for listed in view.members.values()]
    return {member.engine for member in members if not member.draining and member.engine not in view.drained}


def _count(view: View, engines: set[str]) -> tuple[int, int]:
    """Shards of these engines, and the partitions that they own."""
    ids = {member_id for member_id, listed in view.members.items() if listed.member.engine in engines}
    return len(ids), sum(claimed.claim.owner in ids for claimed in view.claims.values())
