"""What a shard does next about the partitions: a pure function of what is stored and of what the shard has.

A partition moves in two steps: its owner hands it over and writes a claim without an owner, then the shard that shall
have it claims it. The claim of an owner that is not listed any more is taken without that.

A shard that has all partitions reads them by one common consumer, which costs the broker less than one for each. Before
it hands any over, all of them get consumers of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.actors.ownership.claims import is_common
from penstock.actors.ownership.placement import placed
from penstock.broker.records.owners import Claimed, Member, View
from penstock.config.limits import PARTITIONS


class Mine(NamedTuple):
    """What this shard has: its claims, the partitions that it works on, those whose consumer does not answer.

    `settled`: no shard came or went for a moment, so partitions may move between living shards. `calm`: for so long
    that a common consumer is worth its making.
    """

    member: Member
    claims: Mapping[int, Claimed]
    working: Collection[int]
    unresponsive: Collection[int]
    settled: bool
    calm: bool


class Moves(NamedTuple):
    """Partitions, each in one of the four lists at most, in ascending order. `part`: they get consumers of their own.

    `unite`: all partitions, those that are still to be taken too, get a common consumer; then the lists are empty.
    `postponed`: there is something to hand over, but not before the members have settled.
    """

    take: tuple[int, ...] = ()
    hand_over: tuple[int, ...] = ()
    replace_consumer: tuple[int, ...] = ()
    part: tuple[int, ...] = ()
    unite: bool = False
    postponed: bool = False


def plan(view: View, mine: Mine) -> Moves:
    """The moves towards what this shard shall own. `view.members` are the living shards."""
    wanted = wanted_partitions(view, mine.member)
    replaced = [number for number in mine.claims if number in wanted and number in mine.unresponsive]
    surplus = [number for number in mine.claims if number not in wanted]
    postponed = bool(surplus) and not (mine.settled or mine.member.draining)
    if not replaced and _shall_unite(wanted, view, mine):
        return Moves(unite=True)
    common = [number for number in mine.claims if number in wanted and is_common(mine.claims[number])]
    united = len(wanted) == PARTITIONS and _is_united(mine) and not replaced
    parted = () if postponed or united else tuple(number for number in common if number not in replaced)
    taken = [
        number
        for number in wanted
        if number not in mine.working
        and number not in replaced
        and number not in common
        and _is_free(number, view, mine)
    ]
    return Moves(
        take=tuple(sorted(taken)),
        hand_over=() if postponed else tuple(sorted(surplus)),
        replace_consumer=tuple(sorted(replaced)),
        part=tuple(sorted(parted)),
        postponed=postponed,
    )


def willing_places(view: View, me: Member) -> frozenset[str]:
    """The places of the living shards that take partitions, of this one too, which the view may not list yet."""
    members = [me, *(listed.member for member_id, listed in view.members.items() if member_id != me.id)]
    return frozenset(member.place for member in members if _is_willing(member, view))


def wanted_partitions(view: View, me: Member) -> frozenset[int]:
    """The partitions that this shard shall own."""
    return placed(willing_places(view, me))[me.place] if _is_willing(me, view) else frozenset()


def _shall_unite(wanted: Collection[int], view: View, mine: Mine) -> bool:
    """Whether one consumer shall read all partitions from now on: at once if nothing is read yet."""
    if len(wanted) < PARTITIONS or not all(_is_free(number, view, mine) for number in wanted):
        return False
    if not mine.working:
        return True
    return mine.calm and len(mine.working) == PARTITIONS and not _is_united(mine)


def _is_united(mine: Mine) -> bool:
    """Whether one consumer reads all partitions."""
    consumers = {claimed.claim.consumer for claimed in mine.claims.values()}
    whole = len(mine.claims) == len(mine.working) == PARTITIONS and len(consumers) == 1
    return whole and all(map(is_common, mine.claims.values()))


def _is_willing(member: Member, view: View) -> bool:
    return not (member.draining or member.engine in view.drained)


def _is_free(number: int, view: View, mine: Mine) -> bool:
    """Whether no other living shard has a claim to it. A claim that was handed over has no owner: an empty id."""
    found = view.claims.get(number)
    return found is None or number in mine.claims or found.claim.owner not in view.members
