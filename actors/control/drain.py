"""Take the work from an engine before its host goes away: its shards hand over what they own, and take nothing more."""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from penstock.broker.records.owners import Owners, View
from penstock.config.limits import PARTITIONS
from penstock.engine.errors import Conflict, NotFound, Unavailable

LOOK_S = 0.05


class Drained(Struct, frozen=True):
    """`partitions` is how many were handed over, `seconds` how long that took."""

    host: str
    shards: int
    partitions: int
    seconds: float


async def drain(owners: Owners, host: str, patience_s: float) -> Drained:
    """Have every engine on the host own nothing as long as it lives; return when others own everything.

    Raises NotFound when none is there, Conflict when nobody else is there to take over (then nothing is done), and
    Unavailable when it takes longer than `patience_s`: it goes on all the same.
    """
    began, view = time.monotonic(), await owners.read()
    engines = {listed.member.engine for listed in view.members.values() if listed.member.host == host}
    if not engines:
        hosts = sorted({listed.member.host for listed in view.members.values()})
        raise NotFound(f"no engine runs on {host}: there are engines on {', '.join(hosts) or 'no host'}")
    if not _willing(view) - engines:
        raise Conflict(f"there is no other engine to take over what {host} owns: nothing was drained")
    shards, partitions = _count(view, engines)
    for engine in engines:
        await owners.drain(engine)
    while _count(view, _willing(view) - engines)[1] < PARTITIONS:
        if time.monotonic() - began > patience_s:
            left = _count(view, engines)[1]
            raise Unavailable(
                f"not everything of {host} is handed over after {patience_s:g} s: {left} partitions are left"
            )
        await asyncio.sleep(LOOK_S)
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
