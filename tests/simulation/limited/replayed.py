"""What the owner of a limit has in memory is what a replay of its log gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker import names
from penstock.engine.limits.fold import fold
from penstock.engine.limits.records import Decided, decode
from penstock.engine.limits.state import LimitState
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.world import World


def check_replays(world: World) -> None:
    """Raises Broken. What the owner has not folded yet is left out."""
    shard, stream = world.engine.shard, world.server.streams.get(names.LIMITS)
    if shard is None or stream is None or not world.engine.alive:
        return
    for partition in shard.limits.partitions.values():
        for limit_id, actor in partition.limits.items():
            live, replayed = actor.state, LimitState()
            subjects = names.limit_ask_subject(limit_id), names.limit_decision_subject(limit_id)
            stored = [one for subject in subjects for one in stream.matching(subject)]
            for message in sorted(stored, key=lambda one: one.seq):
                record = decode(message.data)
                if message.seq <= (live.last if isinstance(record, Decided) else live.upto):
                    fold(replayed, record, message.seq)
            if live.last <= replayed.last and _seen(live) != _seen(replayed):
                raise Broken(f"limit {live.name}: in memory {_seen(live)}, by its log {_seen(replayed)}")


def _seen(state: LimitState) -> dict[str, Any]:
    return {
        "holders": sorted(state.holders),
        "evicting": sorted(state.evicting),
        "waiting": sorted((holder, entry[:2]) for holder, entry in state.waiting.entries.items()),
        "turn": state.turn,
        "spent": list(state.spent),
        "missing": state.missing,
    }
