"""What a shard does next about the partitions: a pure function of what is stored and of what the shard has.

A partition moves in two steps: its owner hands it over and writes a claim without an owner, then the shard that shall
have it claims it. The claim of an owner that is not listed any more is taken without that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.actors.ownership.placement import placed
from penstock.broker.records.owners import Claimed, Member, View


class Mine(NamedTuple):
    """What this shard has: its claims, the partitions that it works on, those whose consumer does not answer.

    `settled`: no shard came or went for a moment, so partitions may move between living shards.
    """

    member: Member
    claims: Mapping[int, Claimed]
    working: Collection[int]
    unresponsive: Collection[int]
    settled: bool


class Moves(NamedTuple):
    """Partitions, each in one of the three lists at most, in ascending order.

    `postponed`: there is something to hand over, but not before the members have settled.
    """

    take: tuple[int, ...] = ()
    hand_over: tuple[int, ...] = ()
    replace_consumer: tuple[int, ...] = ()
    postponed: bool = False


def plan(view: View, mine: Mine) -> Moves:
    """The moves towards what this shard shall own. `view.members` are the living shards."""
    wanted = wanted_partitions(view, mine.member)
    replaced = [number for number in mine.claims if number in wanted and number in mine.unresponsive]
    taken = [
        number
        for number in wanted
        if number not in mine.working and number not in replaced and _is_free(number, view, mine)
    ]
    surplus = [number for number in mine.claims if number not in wanted]
    postponed = bool(surplus) and not (mine.settled or mine.member.draining)
    handed_over = () if postponed else tuple(sorted(surplus))
    return Moves(tuple(sorted(taken)), handed_over, tuple(sorted(replaced)), postponed)


def willing_places(view: View, me: Member) -> frozenset[str]:
    """The places of the living shards that take partitions, of this one too, which the view may not list yet."""
    members = [me, *(listed.member for member_id, listed in view.members.items() if member_id != me.id)]
    return frozenset(member.place for member in members if _is_willing(member, view))


def wanted_partitions(view: View, me: Member) -> frozenset[int]:
    """The partitions that this shard shall own."""
    return placed(willing_places(view, me))[me.place] if _is_willing(me, view) else frozenset()


def _is_willing(member: Member, view: View) -> bool:
    return not (member.draining or member.engine in view.drained)


def _is_free(number: int, view: View, mine: Mine) -> bool:
    """Whether no other living shard has a claim to it. A claim that was handed over has no owner: an empty id."""
    found = view.claims.get(number)
    return found is None or number in mine.claims or found.claim.owner not in view.members
